"""The list of breaks fits the code, and what becomes of a break is told apart."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tools.mutants import tree as mutants_tree
from tools.mutants.__main__ import main, part, read_share, summary
from tools.mutants.breaks import all_breaks
from tools.mutants.model import Break, Result
from tools.mutants.tree import ROOT, Tree

BREAKS = [change for breaks in all_breaks().values() for change in breaks]
PYTHON = ("relkit", "commands", "reports")
C = ("native/src", "native/merge", "native/slots", "native/run_times")
HALF = "def half(n):\n    return n // 2\n"
TESTS = """\
from half import half

def test_even():
    assert half(4) == 2

def test_odd():
    assert half(5) == 2
"""


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def is_there(test: str) -> bool:
    """Whether a pytest argument (a folder, a file, or a function of one) exists."""
    file, _, name = test.partition("::")
    if not name:
        return (ROOT / file).exists()
    function = name.rpartition("::")[2].partition("[")[0]
    return (ROOT / file).is_file() and f"def {function}(" in text_of(file)


def test_what_a_break_replaces_is_there_exactly_once() -> None:
    assert [change.title for change in BREAKS if text_of(change.file).count(change.old) != 1] == []


def test_a_break_changes_something_and_is_listed_once() -> None:
    assert [change.title for change in BREAKS if change.old == change.new] == []
    times = Counter((change.file, change.old, change.new) for change in BREAKS)
    assert [what for what, count in times.items() if count > 1] == []


def room_of(path: Path) -> str:
    return str(path.resolve().parent.relative_to(ROOT))


def test_every_room_has_a_break() -> None:
    """Each folder of C, and each of Python that is more than a few lines."""
    lines: Counter[str] = Counter()
    for path in {path.resolve() for top in PYTHON for path in (ROOT / top).rglob("*.py")}:
        lines[room_of(path)] += sum(map(bool, path.read_text(encoding="utf-8").splitlines()))
    rooms = {room for room, count in lines.items() if count > 150}
    rooms |= {room_of(path) for top in C for path in (ROOT / top).rglob("*.c")}
    assert len(rooms) > 60
    assert sorted(rooms - {room_of(ROOT / change.file) for change in BREAKS}) == []


def test_a_break_names_tests_that_exist() -> None:
    assert [change.title for change in BREAKS if not change.tests] == []
    tests = {test for change in BREAKS for test in change.tests}
    assert [test for test in sorted(tests) if not is_there(test)] == []


def test_a_test_that_is_gone_is_missed() -> None:
    here = "tests/unit/tools/test_mutants.py"
    assert is_there(here)
    assert is_there(f"{here}::test_a_test_that_is_gone_is_missed[case]")
    assert not is_there(f"{here}::test_a_test")
    assert not is_there("tests/unit/tools/test_mutant.py")


@pytest.mark.parametrize(
    ("noticed_by", "trouble", "survives", "word", "is_good"),
    [
        ("t", "", "", "noticed", True),
        ("", "", "", "SURVIVES", False),
        ("", "", "why", "survives, explained", True),
        ("t", "", "why", "noticed, although it is said to survive", False),
        ("", "not there", "", "cannot be tried", False),
        ("", "not there", "why", "cannot be tried", False),
    ],
)
def test_a_break_is_either_noticed_or_explained(
    noticed_by: str, trouble: str, survives: str, word: str, is_good: bool
) -> None:
    result = Result(Break("f", "1", "2", ("t",), survives), 0.0, noticed_by, trouble)
    assert (result.word, result.is_good) == (word, is_good)


@pytest.mark.parametrize("survives", ["", "why"])
def test_a_break_whose_tests_do_not_end_is_neither_noticed_nor_a_survivor(survives: str) -> None:
    result = Result(Break("f", "1", "2", ("t",), survives), 600.0, timed_out=True)
    assert (result.word, result.is_good, result.is_survivor) == ("TIMED OUT", False, False)


def test_the_summary_counts_each_kind_and_names_what_survives() -> None:
    results = [
        Result(Break("f", "1", "2", ()), 0.0, "t"),
        Result(Break("f", "3", "4", ()), 0.0),
        Result(Break("f", "5", "6", (), "why"), 0.0),
        Result(Break("f", "7", "8", ()), 0.0, trouble="not there"),
        Result(Break("f", "9", "0", ()), 0.0, timed_out=True),
    ]
    assert summary(results).splitlines() == [
        "",
        "5 breaks: 1 noticed, 2 survive, 1 timed out, 1 cannot be tried",
        "  f: 3 -> 4",
        "    NOT EXPLAINED",
        "  f: 5 -> 6",
        "    why",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--match", "no such text"],
        ["no-such-area"],
        ["--jobs", "0", "common"],
        ["--share", "0/8"],
        ["--share", "9/8"],
        ["--share", "8"],
        ["--share", "9999/9999"],
    ],
)
def test_nothing_to_try_is_a_wrong_command_line(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)


def test_each_break_is_in_one_of_the_parts_and_their_sizes_differ_by_one_at_most() -> None:
    parts = [part(BREAKS, read_share(f"{number}/8")) for number in range(1, 9)]
    assert sorted(id(change) for each in parts for change in each) == sorted(map(id, BREAKS))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A copy of a repository of two files."""
    # pytest starts in a third of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    (tmp_path / "half.py").write_text(HALF, encoding="utf-8")
    (tmp_path / "test_half.py").write_text(TESTS, encoding="utf-8")
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "noticed_by", "trouble"),
    [
        ("n // 2", "n / 2", "test_half.py::test_odd", ""),
        ("n // 2", "n >> 1", "", ""),
        ("n // 3", "n", "", "the old text is there 0 times"),
        ("n", "m", "", "the old text is there 3 times"),
        ("n // 2", "n //", "", "pytest cannot run test_half.py"),
    ],
    ids=["noticed", "survives", "gone", "not alone", "no Python"],
)
def test_a_break_is_tried_and_taken_back(
    tree: Tree, old: str, new: str, noticed_by: str, trouble: str
) -> None:
    result = tree.attempt(Break("half.py", old, new, ("test_half.py",)))
    assert result.noticed_by == noticed_by
    assert trouble in result.trouble
    assert bool(trouble) is bool(result.trouble)
    assert (tree.folder / "half.py").read_text(encoding="utf-8") == HALF


FOREVER = """\
import signal, subprocess

def test_forever():
    with open("pipe", "wb", buffering=0) as pipe:
        subprocess.Popen(["sleep", "1000"], pass_fds=[pipe.fileno()])
        pipe.write(b"begun")
        signal.pause()
"""


def test_ctrl_c_ends_the_tests_and_what_they_have_started(tree: Tree) -> None:
    (tree.folder / "test_half.py").write_text(FOREVER, encoding="utf-8")
    os.mkfifo(tree.folder / "pipe")
    ended = threading.Event()

    def stop_once_begun() -> None:
        with (tree.folder / "pipe").open("rb", buffering=0) as pipe:
            assert pipe.read(5) == b"begun"
            tree.stopped.set()
            # To the end, which comes when nobody has it open for writing.
            assert pipe.read() == b""
        ended.set()

    threading.Thread(target=stop_once_begun, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        tree.attempt(Break("half.py", "n // 2", "n / 2", ("test_half.py",)))
    assert ended.wait(10 * PATIENCE)
    assert (tree.folder / "half.py").read_text(encoding="utf-8") == HALF


def test_tests_that_take_too_long_have_noticed_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants_tree, "_LIMIT_S", 0.0)
    result = tree.attempt(Break("half.py", "n // 2", "n / 2", ("test_half.py",)))
    assert (result.timed_out, result.noticed_by, result.trouble) == (True, "", "")
    assert (tree.folder / "half.py").read_text(encoding="utf-8") == HALF


def test_a_compiler_that_takes_too_long_ends_no_other_breaks(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, compiler = tree.folder / "native" / "half.c", tree.folder / "cmake"
    source.parent.mkdir()
    source.write_text("one", encoding="utf-8")
    compiler.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    compiler.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tree.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(mutants_tree, "_BUILD_S", 0.01)
    result = tree.attempt(Break("native/half.c", "one", "two", ("test_half.py",)))
    assert (result.timed_out, result.noticed_by) == (True, "")
    assert source.read_text(encoding="utf-8") == "one"
