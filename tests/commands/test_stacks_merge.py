"""relkit stacks merge: its files, its report, and what it says of folders it cannot use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relkit.commands.subcommands.stacks_merge import merge
from relkit.errors import BadDump, UnwritablePath, UsageProblem
from relkit.stacks.dumpfile import write_dump
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

GOLD = Path(__file__).parents[1] / "data/xpu_timer/eight_ranks"
RESULTS = {f"{view}_stack{end}" for view in ("py", "cpp", "mixed") for end in ("", ".svg")} | {
    "stack_graph.dot"
}
DRAWN_BY_GRAPHVIZ = {"stack_graph.svg"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(merge, [str(a) for a in arguments], standalone_mode=False)


def merged_json(*arguments: object) -> dict[str, object]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in GOLD.glob("*.stacktrace"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_private_files_beside_the_dumps(folder: Path) -> None:
    result = run(folder)
    assert result.return_value == 0, result.output
    made = {path.name for path in folder.iterdir() if path.suffix != ".stacktrace"}
    assert made - DRAWN_BY_GRAPHVIZ == RESULTS
    for name in RESULTS:
        assert (folder / name).stat().st_mode & 0o777 == 0o600
        assert str(folder / name) in result.stdout
    for name in ("py_stack", "cpp_stack"):
        ours = sorted((folder / name).read_text().splitlines())
        assert ours == sorted((GOLD / name).read_text().splitlines())
    assert (folder / "mixed_stack.svg").read_text().lstrip().startswith("<")


def test_the_original_viewers_spelling_is_the_same(folder: Path, tmp_path: Path) -> None:
    plain, path, both = (tmp_path / name for name in ("plain", "path", "both"))
    run(folder, "-o", plain)
    assert run("--path", folder, "-o", path).return_value == 0
    assert run(folder, "--path", f"{folder}/.", "-o", both).return_value == 0
    for name in RESULTS:
        assert (plain / name).read_bytes() == (path / name).read_bytes()
        assert (plain / name).read_bytes() == (both / name).read_bytes()


def test_two_folders_or_none_are_a_usage_error(folder: Path) -> None:
    two = run(folder, "--path", folder / "other").exception
    assert isinstance(two, UsageProblem)
    assert str(two) == f"PATH is {folder} and --path is {folder / 'other'}"
    assert isinstance(run().exception, UsageProblem)


def test_merging_again_gives_the_same_bytes(folder: Path) -> None:
    run(folder)
    before = {name: (folder / name).read_bytes() for name in RESULTS}
    run(folder)
    assert before == {name: (folder / name).read_bytes() for name in RESULTS}


def test_the_ranks_that_stand_apart_come_with_their_place(folder: Path) -> None:
    document = merged_json(folder, "-o", folder / "new")
    assert document["schema"] == "relkit.stacks/1"
    assert (document["world_size"], document["ranks"], document["absent"]) == (8, "0-7", "")
    findings = document["findings"]
    assert isinstance(findings, list)
    apart = {f["ranks"]: f["title"] for f in findings if f["id"] == "RK-STK-012"}
    assert sorted(apart) == ["2", "5"]
    assert "wait (threading.py:320)" in apart["2"]
    assert {path.name for path in (folder / "new").iterdir()} - DRAWN_BY_GRAPHVIZ == RESULTS
    assert (folder / "new").stat().st_mode & 0o777 == 0o700


def test_absent_and_refused_files_are_not_passed_over(folder: Path) -> None:
    (folder / "00006-00008.stacktrace").unlink()
    (folder / "00007-00008.stacktrace").write_bytes(b"\x0a\xff")
    result = run(folder, "--json")
    document = json.loads(result.stdout)
    assert result.return_value == 3
    assert document["absent"] == "6-7"
    assert [entry["file"] for entry in document["refused"]] == ["00007-00008.stacktrace"]
    assert {"RK-STK-010", "RK-STK-011"} <= {f["id"] for f in document["findings"]}


def test_a_job_is_chosen_by_its_id(tmp_path: Path) -> None:
    write_dump(tmp_path, RankDump(0, 1, 1, "S", job_id="old", captured_unix_ns=1))
    write_dump(tmp_path, RankDump(1, 2, 1, "S", job_id="new", captured_unix_ns=2))
    assert merged_json(tmp_path)["job_id"] == "new"
    assert merged_json(tmp_path, "--job-id", "old")["world_size"] == 1


def test_hostile_names_steer_neither_terminal_nor_files(tmp_path: Path) -> None:
    nasty = Frame("f\x1b[2J;<script>alert(1)</script>\n", "\x1b]0;x\x07.py:1")
    for rank in range(3):
        frames = (nasty,) if rank == 1 else (Frame("ok", "a.py:1"),)
        thread = ThreadStack(1, "\x1b[31m", frames, Role.MAIN)
        write_dump(
            tmp_path,
            RankDump(rank, 3, 1, "S\x1b", (), (thread,), "", "\x1b[2J", 1, (), ("\x1b[1m",)),
        )
    (tmp_path / os.fsdecode(b"\xff\x1b.stacktrace")).write_bytes(b"junk")
    result = run(tmp_path)
    assert result.exception is None
    assert "\x1b" not in result.output
    assert "<script>alert" not in (tmp_path / "mixed_stack.svg").read_text()
    for name in ("py_stack", "mixed_stack"):
        assert "\x1b" not in (tmp_path / name).read_text()
    assert json.loads(run(tmp_path, "--json").stdout)["job_id"] == "\x1b[2J"


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        result = run(path)
        assert isinstance(result.exception, BadDump)
        assert result.exception.next_step
    write_dump(tmp_path, RankDump(0, 1, 1, "S"))
    (tmp_path / "file").touch()
    result = run(tmp_path, "-o", tmp_path / "file/below")
    assert isinstance(result.exception, UnwritablePath)
