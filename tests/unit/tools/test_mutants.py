"""Breaks are made, run in a copy and judged as `make mutants` says; none is tried here."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.mutants import choose, verdict
from tools.mutants.generate import Source
from tools.mutants.model import Break, Outcome, Result
from tools.mutants.nearest_tests import NearestTests, named_in
from tools.mutants.promise_table import TABLE
from tools.mutants.promises import NotThere, Promise, broken, gives, swap, without
from tools.mutants.pytest_server import NoEnd, PytestServer
from tools.mutants.tree import LIGHT, ROOT, Tree
from tools.mutants.trial import Soundness, attempt, batches

HALF = '''\
"""Halves."""

from __future__ import annotations

import logging


@frozen(slots=True)
def half(n: int, keys: tuple[str, int] = ("a b", 1)) -> int:
    """Half of it."""
    logging.info("now %d", 3)
    if n > 2 and keys:
        return n // 2
    return 1
'''
TESTS = """\
from half import half

def test_even():
    assert half(4) == 2

def test_odd():
    assert half(5) == 2

def test_that_fails_anyhow():
    assert half(5) == 3
"""
C = """\
static int half(int n)
{
    log(n);
    return n / 2;
}

int other(void)
{
    return 0;
}
"""


def source_of(folder: Path, text: str = HALF) -> Source:
    (folder / "half.py").write_text(text, encoding="utf-8")
    return Source.read(folder, "half.py")


def test_breaks_of_a_function(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    made = [source.write_out(place) for place in source.places]
    changes = {(each.old, each.new) for each in made if each is not None}
    assert {
        ("n > 2 and keys", "(n > 2)"), ("n > 2 and keys", "n > 2 or keys"), ("n // 2", "n / 2"),
        ("return n // 2", "return None"), ("2", "3"),
    } <= changes  # fmt: skip
    assert {each.function for each in made if each is not None} == {"half"}
    for each in filter(None, made):
        assert ast.dump(ast.parse(each.source)) != ast.dump(ast.parse(HALF))


@pytest.mark.parametrize("words", ["frozen", "Half of it", "now %d", "tuple[str", "annotations"])
def test_what_can_change_nothing_is_left_alone(tmp_path: Path, words: str) -> None:
    source = source_of(tmp_path)
    for each in filter(None, map(source.write_out, source.places)):
        assert words in each.source


def test_a_condition_of_types_is_left_alone(tmp_path: Path) -> None:
    text = "if TYPE_CHECKING:\n    import a\n    B = a.b(1)\n__all__ = ['a', 'b']\n"
    assert source_of(tmp_path, text).places == ()


def test_a_seed_draws_the_same_breaks_again(tmp_path: Path) -> None:
    source_of(tmp_path)
    drawn = [list(choose.at_random(tmp_path, 5, seed, ["half.py"])) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({each.source for each in drawn[0]}) == 5
    # There are not so many.
    everything = list(choose.at_random(tmp_path, 1000, 1, ["half.py"]))
    assert len(everything) < 100


def test_lines_of_a_diff() -> None:
    diff = "@@ -1 +1 @@\n-a\n+b\n@@ -7,2 +9,3 @@ def f():\n@@ -20,3 +30,0 @@\n"
    assert choose.changed_lines(diff) == {1, 9, 10, 11}


def test_breaks_of_a_file_are_those_of_all_its_lines(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    found = list(choose.in_files(tmp_path, ["half.py"]))
    assert found == [each for each in map(source.write_out, source.places) if each]


def test_the_nearest_tests_by_imports_and_names(tmp_path: Path) -> None:
    files = {
        "relkit/hang/waits.py": "",
        "relkit/hang/verdict.py": "from relkit.hang.waits import wait\n",
        "tests/unit/far/test_other.py": "import relkit.net.dial\n",
        "tests/unit/a/test_verdict.py": "from relkit.hang import (\n    verdict,\n)\n",
        "tests/unit/a/test_direct.py": "from relkit.hang.waits import wait\n",
        "tests/unit/a/test_job.py": "import relkit.hang.waits\npytestmark = pytest.mark.job\n",
        "tests/unit/hang/test_by_name.py": "",
        "tests/unit/layout/test_text.py": "relkit.hang.waits\n",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    nearest = NearestTests(tmp_path)
    assert nearest.heavy("relkit/hang/waits.py") == ["tests/unit/a/test_job.py"]
    found = nearest.of("relkit/hang/waits.py")
    assert [Path(file).name for file in found] == [
        "test_direct.py", "test_verdict.py", "test_by_name.py"
    ]  # fmt: skip


def test_names_in_a_file() -> None:
    text = 'from relkit.a import b, c as d\nrun("-m", "relkit.e.f")\n'
    assert {"relkit.a", "relkit.a.b", "relkit.a.c", "relkit.e.f"} <= named_in(text)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A copy of a repository of two files, and of what runs pytest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Torch takes seconds, and no test here needs it.
    server = (ROOT / "tools/mutants/forked_pytest.py").read_text(encoding="utf-8")
    package = tmp_path / "tools" / "mutants"
    package.mkdir(parents=True)
    (package / "forked_pytest.py").write_text(
        server.replace('"numpy", "psutil", "click", "rich.console", "hypothesis", "torch"', ""),
        encoding="utf-8",
    )
    (tmp_path / "pytest_timeout.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--timeout')\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "half.py").write_text(HALF.replace("@frozen(slots=True)\n", ""), encoding="utf-8")
    (tmp_path / "test_half.py").write_text(TESTS, encoding="utf-8")
    pytests = PytestServer(Path(sys.executable), tmp_path, threading.Event())
    yield Tree(tmp_path, pytests)
    pytests.close()


def change_of(tree: Tree, old: str, new: str) -> Break:
    whole = (tree.folder / "half.py").read_text(encoding="utf-8")
    return Break("half.py", "half", 1, old, new, whole.replace(old, new))


def test_breaks_are_tried_and_taken_back(tree: Tree) -> None:
    """A test that fails without the break has noticed nothing."""
    whole = (tree.folder / "half.py").read_text(encoding="utf-8")
    soundness = Soundness()
    told = {}
    for new in ("n / 2", "n >> 1", "missing"):
        change = change_of(tree, "n // 2", new)
        result = attempt(tree, change, ["test_half.py"], soundness, 60.0, "")
        told[new] = (result.outcome, result.why)
        assert (tree.folder / "half.py").read_text(encoding="utf-8") == whole
    assert told == {
        "n / 2": (Outcome.NOTICED, "test_half.py::test_odd"),
        "n >> 1": (Outcome.SURVIVED, "1 test files pass"),
        "missing": (Outcome.NOTICED, "test_half.py::test_even"),
    }
    assert soundness.known["test_half.py::test_that_fails_anyhow"] is False


def test_a_module_that_cannot_be_imported_any_more_is_noticed(tree: Tree) -> None:
    change = change_of(tree, "import logging", "import no_such_module")
    result = attempt(tree, change, ["test_half.py"], Soundness(), 60.0, LIGHT)
    assert (result.outcome, result.why) == (Outcome.NOTICED, "test_half.py")


def test_tests_that_take_too_long_are_ended(tree: Tree) -> None:
    (tree.folder / "test_half.py").write_text(
        "import signal\n\ndef test_forever():\n    signal.pause()\n", encoding="utf-8"
    )
    change = change_of(tree, "n // 2", "n")
    result = attempt(tree, change, ["test_half.py"], Soundness(), 0.5, "")
    assert result.outcome is Outcome.SURVIVED
    assert result.why.startswith("not all tests were run")


def test_ctrl_c_ends_the_tests(tree: Tree) -> None:
    (tree.folder / "test_half.py").write_text(
        "import signal\n\ndef test_forever():\n    signal.pause()\n", encoding="utf-8"
    )
    tree.pytests._stopped.set()
    with pytest.raises(KeyboardInterrupt):
        tree.first_failure(["test_half.py"], 60.0)


def test_a_python_that_does_not_start_is_said(tmp_path: Path) -> None:
    pytests = PytestServer(Path("/bin/true"), tmp_path, threading.Event())
    with pytest.raises((NoEnd, BrokenPipeError)):
        pytests.run([], tmp_path / "output", 1.0)
    pytests.close()


@given(st.lists(st.integers(), max_size=50))
def test_batches_have_each_test_once(numbers: list[int]) -> None:
    tests = [str(number) for number in numbers]
    assert [test for batch in batches(tests) for test in batch] == tests


def result(outcome: Outcome, file: str = "relkit/hang/a.py") -> Result:
    return Result(Break(file, "f", 1, "1", "2", ""), outcome)


def test_shares_of_rooms() -> None:
    results = [
        result(Outcome.NOTICED), result(Outcome.ENDLESS), result(Outcome.EXPLAINED),
        result(Outcome.SURVIVED), result(Outcome.UNTRIED),
        result(Outcome.SURVIVED, "commands/a.py"),
    ]  # fmt: skip
    assert verdict.shares(results) == {"commands": (0, 1), "relkit/hang": (3, 4)}


@pytest.mark.parametrize(
    ("now", "is_worse"),
    [((9, 10), False), ((7, 10), False), ((5, 10), True), ((0, 1), False), ((0, 2), True)],
)
def test_a_room_is_worse_where_chance_does_not_explain_it(
    now: tuple[int, int], *, is_worse: bool
) -> None:
    assert bool(verdict.worse_rooms({"relkit/a": now}, {"relkit/a": (90, 100)})) is is_worse
    assert verdict.worse_rooms({"relkit/new": now}, {"relkit/a": (90, 100)}) == []


def test_the_ratchet_adds_up() -> None:
    text = verdict.with_more({"relkit/a": (3, 4)}, {"relkit/a": (1, 2), "reports": (1, 1)})
    assert verdict.read_ratchet(text) == {"relkit/a": (4, 6), "reports": (1, 1)}


def test_a_break_that_changes_nothing_is_found_by_its_words() -> None:
    text = "# comment\nrelkit/a.py::f | 1 -> 2 | nobody can tell\n"
    change = Break("relkit/a.py", "f", 77, "1", "2", "")
    assert verdict.explanations(text)[verdict.name_of(change)] == "nobody can tell"


def test_files_of_the_tool_can_be_read() -> None:
    assert verdict.explanations(verdict.EQUIVALENT.read_text(encoding="utf-8")).keys() is not None
    for good, tried in verdict.read_ratchet(verdict.RATCHET.read_text(encoding="utf-8")).values():
        assert 0 <= good <= tried


def test_a_promise_is_broken_in_its_function_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    def f(self):\n        '''Says x.'''\n        if 1:\n            raise X(\n"
        "                'x')\n        return 1\n\ndef f():\n    raise X('x')\n",
        encoding="utf-8",
    )
    (tmp_path / "a.c").write_text(C, encoding="utf-8")

    def after(file: str, function: str, edit: object) -> str:
        promise = Promise(file, function, "words", edit, ("t",))  # type: ignore[arg-type]
        return broken(tmp_path, promise).source

    changed = after("a.py", "A.f", without("x"))
    assert changed.count("raise X") == 1
    assert "        if 1:\n            pass\n        return 1\n" in changed
    assert "    def f(self):\n        return 5\n\ndef f" in after("a.py", "A.f", gives("5"))
    assert "log" not in after("a.c", "half", without("log"))
    assert "n / 3" in after("a.c", "half", swap("n / 2", "n / 3"))
    assert after("a.c", "other", gives("7")).endswith("int other(void)\n{ return 7; }\n")
    for function, edit in (
        ("gone", gives("1")),
        ("other", swap("n / 2", "")),
        ("other", without("q")),
    ):
        with pytest.raises(NotThere):
            after("a.c", function, edit)


def test_promises_are_few_and_name_tests_that_exist() -> None:
    assert len(TABLE) <= 100
    assert all(promise.words and promise.tests for promise in TABLE)
    named = {test.partition("::")[0] for promise in TABLE for test in promise.tests}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
