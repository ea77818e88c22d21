"""The layout of the repository and the direction of imports, as docs/architecture.md says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import relkit.commands
import relkit.reports

ROOT = Path(__file__).resolve().parents[2]


def python_files(folder: str) -> list[Path]:
    # relkit/commands and relkit/reports are links to folders that are looked at by themselves.
    linked = {ROOT / "relkit" / "commands", ROOT / "relkit" / "reports"}
    found = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if linked.isdisjoint(path.parents)]


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_the_two_links_exist_and_point_to_the_real_folders() -> None:
    for name in ("commands", "reports"):
        link = ROOT / "relkit" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name
    assert Path(relkit.commands.__path__[0]).resolve() == ROOT / "commands"
    assert Path(relkit.reports.__path__[0]).resolve() == ROOT / "reports"


@pytest.mark.parametrize("path", python_files("relkit"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_library_imports_neither_commands_nor_reports_nor_click(path: Path) -> None:
    names = imported(path)
    allowed = path.name == "cli.py"
    assert not any(n.startswith(("relkit.commands", "relkit.reports")) for n in names)
    assert allowed or not any(n.split(".")[0] == "click" for n in names)


@pytest.mark.parametrize("path", python_files("relkit"), ids=lambda p: str(p.relative_to(ROOT)))
def test_torch_is_imported_only_where_jobs_are_run(path: Path) -> None:
    uses_torch = any(name.split(".")[0] == "torch" for name in imported(path))
    place = path.relative_to(ROOT / "relkit")
    # Always a child process, which imports torch only when it is told to copy.
    is_probe = place == Path("linkcheck/peer_copies.py") or place.parent == Path("netcheck/probes")
    assert not uses_torch or is_probe or place.parts[0] in ("launch", "trainer", "ttp")


@pytest.mark.parametrize("path", python_files("reports"), ids=lambda p: str(p.relative_to(ROOT)))
def test_reports_import_exchange_types_only(path: Path) -> None:
    allowed = (
        "relkit.findings",
        "relkit.ranks",
        "relkit.output",
        "relkit.errors",
        "relkit.stacks",
        "relkit.netcheck.model",
        "relkit.straggler.history_types",
        "relkit.straggler.model",
        "relkit.straggler.view",
        "relkit.reports",
    )
    ours = {name for name in imported(path) if name.startswith("relkit")}
    assert all(name.startswith(allowed) or name == "relkit" for name in ours), ours


def test_no_file_has_outgrown_its_one_job() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("relkit", "commands", "reports", "tests", "benchmarks", "native")
        for path in sorted((ROOT / folder).rglob("*.[pch]*"))
        if path.suffix in (".py", ".c", ".h") and (lines := path.read_text().count("\n")) > 500
    }
    assert not long
