"""All checks and tests: ruff, mypy, and the tests in four lanes side by side.

    make test                           (all but those marked `long`)
    make test TESTS="tests/native"      (pytest's arguments; long tests as well)
    make test-all                       (everything, as CI does)

Most tests wait for something now and then, and the end says how much CPU each folder took. Tests
that judge the speed of ranks run after all others, and on one host those of one checkout at a time.
A marker whose tools are missing is left out, with a note; as root or with CI=true that is a
failure, as is a test that was skipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tools.run_tests.lanes import Rules, Runner, Screen
from tools.run_tests.left_out import is_strict, markers_left_out, selection
from tools.run_tests.results import Problem
from tools.run_tests.summary import summary
from tools.run_tests.turns import turn
from tools.run_tests.units import Plan, Unit, plan, selected

_ROOT = Path(__file__).resolve().parents[2]
# Twice as many as CI's machine has cores, as tests also wait.
_LANES = ("lane 1", "lane 2", "lane 3", "lane 4")


def main() -> int:
    """Run what is asked for; the exit code says whether all of it passed."""
    parser = argparse.ArgumentParser(prog="run_tests", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--all", action="store_true", help="the tests marked `long` as well")
    parser.add_argument(
        "tests",
        nargs=argparse.REMAINDER,
        help="pytest's arguments; without any, all but the long ones",
    )
    options = parser.parse_args()
    os.chdir(_ROOT)
    # Compiling relkit anew in each of the thousands of processes that tests start costs minutes.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    is_root = os.geteuid() == 0
    strict = is_strict(os.environ, is_root)
    left = markers_left_out(is_root)
    work = Path(tempfile.mkdtemp(prefix="relkit-tests-"))
    # Arguments for pytest say which tests are meant, long ones as well.
    has_long = options.all or bool(options.tests)
    screen = Screen()
    runner = Runner(Rules(selection(left, has_long=has_long), strict, work), screen)
    for marker, reason in left.items():
        what = f"left out: tests marked {marker!r} ({reason})"
        screen.lines("markers", [what])
        if strict:
            runner.others.append(Problem(what, "markers", "markers", is_test=False))
    # Also where it was started in the background of a shell, which lets SIGINT be ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if not has_long:
        screen.lines("markers", ["without tests marked 'long': make test-all runs them as well"])
    began = time.monotonic()
    interrupted = False
    try:
        _run(runner, screen, options.tests)
    except KeyboardInterrupt:
        interrupted = True
        runner.others.append(Problem("interrupted", "all", "all", is_test=False))
    took_s = time.monotonic() - began
    print("\n".join(summary(runner.results, runner.lane_s, runner.others, took_s)), flush=True)
    shutil.rmtree(work, ignore_errors=True)
    if interrupted:
        return 130
    return 1 if runner.others or any(result.problems for result in runner.results) else 0


def _run(runner: Runner, screen: Screen, tests: list[str]) -> None:
    folder = Path(sys.executable).parent
    ruff = str(folder / "ruff")
    for words in (
        (ruff, "format", "--check", "-q", "."), (ruff, "check", "-q", "."), ("tools/c_format.sh",)
    ):  # fmt: skip
        done = subprocess.run(words, check=False, timeout=300, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            what = f"{' '.join((Path(words[0]).name, *words[1:]))}: exit code {done.returncode}"
            runner.others.append(Problem(what, "lint", "lint", is_test=False))
            return
    mypy = Unit("mypy", argv=(str(folder / "mypy"),))
    todo = Plan(selected(tests), ()) if tests else plan(_ROOT)
    screen.lines(
        "tests", [f"{len(todo.shared)} units in {len(_LANES)} lanes, then {len(todo.alone)} alone"]
    )
    runner.run(_LANES, (mypy, *todo.shared))
    if todo.alone:
        with turn(lambda text: screen.lines("alone", [text])):
            runner.run(("alone",), todo.alone)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
