"""Which tests a change touches: `make check`'s."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_GIT_S = 30.0
# The rules of the whole tree, and what checks every command's help: some seconds.
_ALWAYS = ("tests/unit/layout", "tests/commands/test_cli.py")
_IMPORTS = re.compile(
    r"^\s*(?:from|import) ((?:relkit|tools|tests|benchmarks)[\w.]*)", re.MULTILINE
)
# A change of these touches everything.
_ALL = ("tests/conftest.py", "pyproject.toml")
_PAGES = ("docs/", "README.md")
# Everything imports something of these, so only their modules count.
_TOPS = ("relkit", "tests", "tests.unit")


def touched(root: Path, rooms: list[str]) -> list[str]:
    """Pytest's arguments for the tests of some rooms.

    Args:
        root: the checkout.
        rooms: hang, launch/spares, commands; without any, those of the files that differ from where
            this branch left main, or that git does not know yet.
    """
    if rooms:
        folders = [room if (root / room).exists() else f"relkit/{room}" for room in rooms]
        files = [str(p.relative_to(root)) for f in folders for p in sorted((root / f).glob("*.py"))]
    else:
        base = _git(root, "merge-base", "HEAD", "main") or ["HEAD"]
        files = _git(root, "diff", "--name-only", base[0])
        files += _git(root, "ls-files", "--others", "--exclude-standard")
    tests = sorted((root / "tests").rglob("test_*.py"))
    sources = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in tests}
    return list(dict.fromkeys((*_ALWAYS, *of_change(files, sources))))


def of_change(files: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """Test files that a change of these files touches.

    Those that import the changed module or one beside it, those of the room's own folder below
    tests/unit, and those of commands and pages by their names.

    Args:
        files: changed files, from the root of the checkout.
        sources: text of each test file.
    """
    files = list(files)
    if any(file in _ALL for file in files):
        return sorted(sources)
    code = [Path(file) for file in files if file.endswith(".py")]
    modules = {_dotted(path.with_suffix("")) for path in code}
    packages = {_dotted(path.parent) for path in code}.difference(_TOPS)
    folders = {f"tests/unit/{path.parent}".replace("/relkit/", "/") for path in code}
    if any(file.startswith(_PAGES) for file in files):
        folders.add("tests/docs")
    named = {f"tests/commands/test_{path.stem}" for path in code if path.parts[0] == "commands"}
    return [
        test
        for test, text in sorted(sources.items())
        if test in files
        or str(Path(test).parent) in folders
        or test.startswith(tuple(named))
        or any(
            name in modules | packages or name.rpartition(".")[0] in packages
            for name in _IMPORTS.findall(text)
        )
    ]


def _dotted(path: Path) -> str:
    """A module's or folder's name in imports."""
    dotted = ".".join(path.parts)
    return f"relkit.{dotted}" if path.parts[:1] in (("commands",), ("reports",)) else dotted


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, timeout=_GIT_S, check=False
    )
    return done.stdout.splitlines()
