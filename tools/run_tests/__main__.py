"""All checks and tests: ruff, C format, mypy, and the tests in workers side by side.

    make test                           (all but those marked `long`)
    make test TESTS="tests/native"      (pytest's arguments; long tests as well)
    make test-all                       (everything, as CI does)
    make check                          (what differs from main: the tests of the rooms it is in)

The end says where the CPU time went. A marker whose tools are missing is left out, with a note; as
root or with CI=true that is a failure, as is a test that was skipped.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from tools.run_tests.left_out import GIVEN, is_strict, markers_left_out, selection
from tools.run_tests.rooms import touched
from tools.run_tests.workers import Workers

_ROOT = Path(__file__).resolve().parents[2]
# Twice as many as CI's machine has cores, as tests also wait.
_WORKERS = 4
_LINT_S = 300.0
# Of a change's rooms: no real jobs, and nothing that is built.
_SLOW = ("long", "job", "native", "browser", "root", "sshd", "slurm", "spark", "fuzz", "speed")
_QUICK = " and ".join(f"not {marker}" for marker in _SLOW)
# At a load average of 15, 20 minutes were too few for mypy without a cache.
_TYPES_S = 3600.0


def main() -> int:
    """Run what is asked for; the exit code says whether all of it passed."""
    parser = argparse.ArgumentParser(prog="run_tests", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--all", action="store_true", help="the tests marked `long` as well")
    parser.add_argument("--no-checks", action="store_true", help="the tests alone")
    parser.add_argument(
        "--touched", action="store_true", help="quick tests of these rooms, or of what git says"
    )
    # Pytest's arguments; without any, all tests but the long ones.
    options, tests = parser.parse_known_args()
    os.chdir(_ROOT)
    # Compiling relkit anew in each of the thousands of processes that tests start costs minutes.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    # Arguments for pytest say which tests are meant, long ones as well.
    has_long = options.all or bool(tests)
    if options.touched:
        tests = ["-m", _QUICK, *touched(_ROOT, tests)]
    if options.no_checks:
        return _tests(has_long, tests)
    if not _lint():
        return 1
    with subprocess.Popen(
        ("tools/type_check.sh", sys.executable), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as types:  # fmt: skip
        try:
            code = _tests(has_long, tests)
            if code == pytest.ExitCode.INTERRUPTED:
                return code
            said, _ = types.communicate(timeout=_TYPES_S)
        finally:
            if types.poll() is None:
                os.killpg(types.pid, signal.SIGKILL)
    print(f"mypy: {said.strip()}", flush=True)
    return code or types.returncode


def _lint() -> bool:
    ruff = str(Path(sys.executable).with_name("ruff"))
    for words in (
        (ruff, "format", "--check", "-q", "."), (ruff, "check", "-q", "."), ("tools/c_format.sh",)
    ):  # fmt: skip
        done = subprocess.run(words, check=False, timeout=_LINT_S, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            print(f"{' '.join((Path(words[0]).name, *words[1:]))}: exit code {done.returncode}")
            return False
    return True


def _tests(has_long: bool, arguments: list[str]) -> int:
    is_root = os.geteuid() == 0
    strict = is_strict(os.environ, is_root)
    left = markers_left_out(is_root)
    code = int(
        pytest.main(
            [
                "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors",
                "--durations=10", "-m", selection(left, has_long=has_long), *arguments,
            ],
            plugins=[Workers(_WORKERS, strict=strict)],
        )
    )  # fmt: skip
    for marker, reason in left.items():
        print(f"left out: tests marked {marker!r} ({reason})")
    if not has_long:
        print("without tests marked 'long': make test-all runs them as well")
    return code or (1 if strict and left.keys() - GIVEN else 0)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
