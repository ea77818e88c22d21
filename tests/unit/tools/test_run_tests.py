"""`make test`'s own program: how it cuts the tests, and that nothing that goes wrong is silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.run_tests.lanes import Rules, Runner, Screen
from tools.run_tests.left_out import is_strict, markers_left_out, selection
from tools.run_tests.results import Problem, UnitResult
from tools.run_tests.summary import closing_line, summary
from tools.run_tests.units import Unit, arrange, plan, selected

ROOT = Path(__file__).resolve().parents[3]
GOOD = "def test_good():\n    pass\n"


def numbered(folder: str, count: int) -> list[str]:
    return [f"{folder}/test_{number}.py" for number in range(count)]


def test_every_folder_is_a_unit_of_its_own_files() -> None:
    net = numbered("tests/unit/net", 5)
    made = arrange(["tests/unit/test_a.py", *net, "tests/straggler/test_d.py"])
    assert {unit.name: unit.paths for unit in made.shared} == {
        "unit": ("tests/unit/test_a.py",),
        "unit/net": tuple(net),
    }
    assert [unit.name for unit in made.alone] == ["straggler"]


def test_a_folder_of_few_files_is_run_with_the_one_above_it() -> None:
    deep = numbered("tests/unit/net/deep", 3)
    made = arrange([*deep, *numbered("tests/unit/net", 1), *numbered("tests/unit/launch", 5),
                    *numbered("tests/straggler/score", 1)])  # fmt: skip
    assert {unit.name: len(unit.paths) for unit in made.shared} == {"unit": 4, "unit/launch": 5}
    assert [unit.name for unit in made.alone] == ["straggler"]


def test_known_long_folders_come_first_and_then_those_with_most_files() -> None:
    files = ["tests/a/test_1.py", "tests/b/test_1.py", "tests/b/test_2.py", "tests/ttp/test_1.py",
             *numbered("tests/cluster/deep", 5)]  # fmt: skip
    assert [unit.name for unit in arrange(files).shared] == ["cluster/deep", "ttp", "b", "a"]


def test_folders_that_take_longest_are_cut_in_two() -> None:
    made = arrange([*numbered("tests/cluster", 5), *numbered("tests/cluster/deep", 5)]).shared
    assert {unit.name: len(unit.paths) for unit in made} == {
        "cluster 1/2": 3, "cluster 2/2": 2, "cluster/deep": 5
    }  # fmt: skip
    assert {path for unit in made[:2] for path in unit.paths} == set(numbered("tests/cluster", 5))


def test_what_is_asked_for_is_a_unit_each_unless_options_belong_to_all() -> None:
    assert selected(["tests/native", "tests/ttp/test_a.py", "tests/native"]) == (
        Unit("native", ("tests/native",)), Unit("ttp/test_a.py", ("tests/ttp/test_a.py",))
    )  # fmt: skip
    assert selected(["tests/native", "-k", "hook"]) == (
        Unit("tests", ("tests/native", "-k", "hook")),
    )


def test_every_test_file_of_the_checkout_is_in_exactly_one_unit() -> None:
    made = plan(ROOT)
    paths = [path for unit in (*made.shared, *made.alone) for path in unit.paths]
    found = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(paths) == sorted(found)
    assert made.alone


def run(
    tmp_path: Path, files: dict[str, str], *, strict: bool = True, selection: str = ""
) -> Runner:
    units = []
    for name, text in files.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"test_{name}.py").write_text(text)
        units.append(Unit(name, (str(folder),)))
    work = tmp_path / "work"
    work.mkdir()
    runner = Runner(Rules(selection, strict, work), Screen())
    runner.run(("lane 1", "lane 2"), units)
    return runner


def problems(runner: Runner) -> list[str]:
    return [problem.what for result in runner.results for problem in result.problems]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # Most of the time of so small a run is the import of plugins.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.long
def test_a_failed_test_is_listed_with_its_lane_and_shown_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = "def test_bad():\n    assert 1 == 2\n"
    runner = run(tmp_path, {"good": GOOD, "bad": GOOD + bad})
    assert [what.split("::")[1] for what in problems(runner)] == ["test_bad"]
    end = summary(runner.results, runner.lane_s, runner.others, 1.0)
    assert end[-1] == "1 failed, 2 passed in 1.00s"
    assert any(line.startswith("  [lane ") and line.endswith("::test_bad") for line in end)
    assert any(" s (CPU " in line for line in end)
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert "assert 1 == 2" in shown
    assert "test_good.py: 1 passed" in shown


def test_a_process_that_is_killed_is_a_failure_with_the_test_it_was_in(tmp_path: Path) -> None:
    killed = "import os, signal\ndef test_dies():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    runner = run(tmp_path, {"killed": killed + GOOD, "other": GOOD})
    test, error = problems(runner)
    assert test.endswith("::test_dies (was running when the process ended)")
    assert error == "killed: ended by signal 9; 1 tests did not run"
    end = summary(runner.results, runner.lane_s, runner.others, 1.0)
    assert end[-1] == "1 failed, 1 passed, 1 error in 1.00s"


def test_a_process_that_leaves_with_code_0_before_its_tests_are_done_is_a_failure(
    tmp_path: Path,
) -> None:
    leaves = "import os\ndef test_leaves():\n    os._exit(0)\n"
    runner = run(tmp_path, {"leaves": leaves + GOOD})
    test, error = problems(runner)
    assert test.endswith("::test_leaves (was running when the process ended)")
    assert error == "leaves: 1 tests did not run"


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    runner = run(tmp_path, {"broken": "import no_such_module_at_all\n"})
    assert any("test_broken.py" in what for what in problems(runner))


@pytest.mark.parametrize("strict", [True, False])
def test_a_skipped_test_fails_only_where_all_must_run(tmp_path: Path, strict: bool) -> None:
    skips = "import pytest\ndef test_skips():\n    pytest.skip('no such device')\n"
    runner = run(tmp_path, {"skips": skips + GOOD}, strict=strict)
    found = problems(runner)
    if strict:
        assert [what.split("::")[1] for what in found] == [
            "test_skips (skipped: Skipped: no such device)"
        ]
    else:
        assert not found
        assert closing_line(runner.results, (), 1.0) == "1 passed, 1 skipped in 1.00s"


def test_a_unit_whose_tests_are_all_left_out_is_no_failure(tmp_path: Path) -> None:
    marked = "import pytest\npytestmark = pytest.mark.usefixtures()\n" + GOOD
    assert not problems(run(tmp_path, {"marked": marked}, selection="not usefixtures"))


def test_without_a_reason_a_unit_without_tests_is_a_failure(tmp_path: Path) -> None:
    assert problems(run(tmp_path, {"empty": "\n"})) == ["empty: exit code 5; 0 tests did not run"]


def test_a_teardown_that_fails_makes_its_test_a_failed_one(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.fixture\ndef thing():\n    yield\n    assert 0\n"
    runner = run(tmp_path, {"late": text + "def test_late(thing):\n    pass\n"})
    assert [what.split("::")[1] for what in problems(runner)] == ["test_late"]


def test_a_tool_that_fails_is_an_error_and_shows_what_it_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(Rules("", True, tmp_path), Screen())
    runner.run(("lane 1",), [Unit("lint", argv=("sh", "-c", "echo line 3 is bad; exit 4"))])
    assert problems(runner) == ["lint: exit code 4"]
    assert "line 3 is bad" in capsys.readouterr().out
    assert closing_line(runner.results, runner.results[0].problems, 2.0) == "1 error in 2.00s"


def test_a_tool_that_is_missing_does_not_end_its_lane(tmp_path: Path) -> None:
    runner = Runner(Rules("", True, tmp_path), Screen())
    units = [Unit("gone", argv=(str(tmp_path / "gone"),)), Unit("there", argv=("true",))]
    runner.run(("lane 1",), units)
    assert [problem.unit for problem in runner.others] == ["gone"]
    assert [result.unit for result in runner.results] == ["there"]


def test_the_slowest_tests_come_first() -> None:
    result = UnitResult("unit", "lane 1", seconds=90.0, collected=12)
    for number in range(12):
        event = {"event": "outcome", "test": f"t::{number}", "outcome": "passed", "reason": ""}
        result.read([json.dumps({**event, "seconds": float(number)})])
    lines = summary([result], {"lane 1": 90.0}, [], 90.0)
    slowest = [line.split()[-1] for line in lines if "t::" in line]
    assert slowest == [f"t::{number}" for number in range(11, 1, -1)]
    assert "  lane 1    1.5 min: unit 90 s" in lines
    assert lines[-1] == "12 passed in 90.00s"


def test_the_tests_of_most_cpu_are_listed_with_what_they_waited_for(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys\n"
        "def test_idle():\n    pass\n"
        "def test_busy():\n"
        "    code = 'import time\\nwhile time.process_time() < 0.5: pass'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)\n"
    )
    runner = run(tmp_path, {"busy": text})
    lines = summary(runner.results, runner.lane_s, [], 1.0)
    most = lines[lines.index("2 tests of most CPU:") + 1 :]
    assert [line.split("::")[-1] for line in most[:2]] == ["test_busy", "test_idle"]
    assert float(most[0].split()[0]) >= 0.5 > float(most[1].split()[0])


def failed_with(error: str, *tests: str) -> list[Problem]:
    return [Problem(test, "unit", "lane 1", error=error) for test in tests]


def test_each_failure_is_listed_with_its_error_and_one_error_of_many_tests_once() -> None:
    problems = [*failed_with("the ranks ended with 1", "t::a", "t::b"), *failed_with("", "t::c")]
    listed = summary([], {}, problems, 1.0)[3:-2]
    assert listed == [
        "failed:",
        "  [lane 1] t::a",
        "  [lane 1] t::b",
        "      the ranks ended with 1",
        "  [lane 1] t::c",
    ]


def test_of_a_long_error_the_first_and_the_last_lines_are_listed() -> None:
    long = "\n".join(["x" * 300, *map(str, range(2, 101))])
    listed = summary([], {}, failed_with(long, "t::a"), 1.0)[5:-2]
    assert [line.strip() for line in listed] == [
        "x" * 200,
        *map(str, range(2, 6)),
        "...",
        *map(str, range(41, 101)),
    ]


def test_what_a_fixture_of_many_tests_failed_with_is_listed(tmp_path: Path) -> None:
    text = (
        "import pytest\n@pytest.fixture(scope='module')\n"
        "def thing():\n    raise OSError('no thing')\n"
        "@pytest.mark.parametrize('n', range(3))\ndef test_it(thing, n):\n    pass\n"
    )
    runner = run(tmp_path, {"many": text})
    listed = summary(runner.results, {}, [], 1.0)
    assert [line for line in listed if "no thing" in line] == ["      OSError: no thing"]
    assert listed[-1] == "3 failed in 1.00s"


def test_what_belongs_to_no_test_is_listed_too() -> None:
    lost = Problem("left out: tests marked 'gdb' (no gdb)", "markers", "markers", is_test=False)
    lines = summary([], {}, [lost], 1.0)
    assert "  [markers] left out: tests marked 'gdb' (no gdb)" in lines
    assert lines[-1] == "1 error in 1.00s"


def test_long_tests_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    assert selection({"gdb": "", "dot": ""}, has_long=False) == "not gdb and not dot and not long"
    assert selection({}, has_long=True) == ""
    text = f"import pytest\n@pytest.mark.long\n{GOOD}def test_short(): pass\n"
    counts = []
    for number, has_long in enumerate((True, False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        runner = run(folder, {f"a{number}": text}, selection=selection({}, has_long=has_long))
        assert not runner.others
        counts.append(sum(result.count("passed") for result in runner.results))
    assert counts == [2, 1]


def test_ci_runs_long_tests() -> None:
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("exec make test-all")
    assert "tools.run_tests --all\n" in (ROOT / "Makefile").read_text()


def test_nothing_is_left_out_where_all_is_there() -> None:
    assert markers_left_out(True, lambda program: program, lambda: True) == {}


def test_what_is_missing_is_left_out_with_the_reason() -> None:
    missing = {"srun", "java", "chromedriver"}
    left = markers_left_out(
        False, lambda program: None if program in missing else program, lambda: False
    )
    assert sorted(left) == ["browser", "fuzz", "root", "slurm", "spark"]
    assert all(left.values())


@pytest.mark.parametrize(
    ("ci", "is_root", "strict"),
    [("true", False, True), ("1", False, True), ("", False, False), ("false", False, False),
     ("", True, True)],
)  # fmt: skip
def test_all_must_run_on_cis_machine_and_as_root(ci: str, is_root: bool, strict: bool) -> None:
    assert is_strict({"CI": ci}, is_root) is strict
    assert is_strict({}, is_root) is is_root
