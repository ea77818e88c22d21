"""`make test`'s own program: its workers let nothing that goes wrong be silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.waiting import eventually
from tools.run_tests.left_out import GIVEN, is_strict, markers_left_out, selection

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import sys, pytest
from tools.run_tests.workers import Workers
arguments = ["-rA", "-p", "no:cacheprovider", "--continue-on-collection-errors", *sys.argv[2:]]
sys.exit(pytest.main(arguments, plugins=[Workers(2, strict=sys.argv[1] == "strict")]))
"""
GOOD = "\ndef test_good(tmp_path): assert tmp_path.exists()\n"
FILES = {
    "bad": "def test_bad(): assert 1 == 2" + GOOD,
    "broken": "import no_such_module_at_all",
    "busy": (
        "import subprocess, sys\ndef test_busy():\n"
        "    code = 'import time\\nwhile time.process_time() < 0.3: pass'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)\n"
    ),
    "forks": (
        "import os\ndef test_forks():\n    if pid := os.fork():\n        os.waitpid(pid, 0)" + GOOD
    ),
    "killed": "import os\ndef test_dies():\n    os.kill(os.getpid(), 9)" + GOOD,
    "late": (
        "import pytest\n@pytest.fixture\ndef thing():\n    yield\n    assert 0\n"
        "def test_late(thing): pass\n"
    ),
    "leaves": "import os\ndef test_leaves():\n    os._exit(0)" + GOOD,
    "session": (
        "import pytest\n@pytest.fixture(scope='session')\n"
        "def end():\n    yield\n    assert 0, 'end'\n"
        "def test_with_a_bad_end(end): pass\n"
    ),
    "skips": "import pytest\ndef test_skips():\n    pytest.skip('no such device')" + GOOD,
    "skips_all": "import pytest\npytest.skip('not here', allow_module_level=True)",
    "xfails": "import pytest\n@pytest.mark.xfail\ndef test_xfails(): assert 0",
}


def start(folder: Path, files: dict[str, str], *words: str) -> subprocess.Popen[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *words, "-c", os.devnull, f"--rootdir={folder}", str(folder),
         f"--basetemp={folder / 'tmp'}"],
        cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(folder: Path, files: dict[str, str], *words: str) -> tuple[int, list[str]]:
    with start(folder, files, *words) as process:
        out, _ = process.communicate(timeout=300)
    return process.returncode, out.splitlines()


def named(lines: list[str], word: str) -> set[str]:
    """Tests of the list at the end, by the word that stands before them."""
    end = lines[next(n for n, line in enumerate(lines) if "short test summary" in line) :]
    return {line.split()[1].removeprefix("test_") for line in end if line.startswith(f"{word} ")}


@pytest.fixture(scope="module")
def strict_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    return run(tmp_path_factory.mktemp("run"), FILES, "strict")


def test_all_that_goes_wrong_is_in_the_list(strict_run: tuple[int, list[str]]) -> None:
    code, lines = strict_run
    assert code == 1
    assert named(lines, "FAILED") == {
        "bad.py::test_bad", "killed.py::test_dies", "leaves.py::test_leaves",
        "skips.py::test_skips",
    }  # fmt: skip
    assert named(lines, "ERROR") == {"broken.py", "skips_all.py", "late.py::test_late", "worker"}
    assert lines[-1].strip("= ").startswith("4 failed, 9 passed, 1 xfailed, 4 errors in ")


def test_the_rest_of_a_file_runs_after_a_death(strict_run: tuple[int, list[str]]) -> None:
    _, lines = strict_run
    passed = named(lines, "PASSED")
    assert {f"{name}.py::test_good" for name in ("bad", "forks", "killed", "leaves")} <= passed
    text = "\n".join(lines)
    assert "the process ended while it ran this test: signal 9" in text
    assert "the process ended while it ran this test: exit code 0" in text
    assert "skipped, where all tests must run: Skipped: no such device" in text
    assert "AssertionError: end" in text


def test_cpu_time_is_told_of_files_and_tests_with_their_children(
    strict_run: tuple[int, list[str]],
) -> None:
    _, lines = strict_run
    (of_file,) = (line for line in lines if " test_busy.py: 1 passed in " in line)
    assert float(of_file.split("CPU ")[1].split()[0]) >= 0.3
    most = lines[next(n for n, line in enumerate(lines) if line.endswith("tests of most CPU:")) + 1]
    assert most.endswith("test_busy.py::test_busy")


def test_a_skipped_test_is_none_that_failed_where_not_all_must_run(tmp_path: Path) -> None:
    files = {name: FILES[name] for name in ("skips", "skips_all", "xfails")}
    code, lines = run(tmp_path, files, "lax")
    assert code == 0
    assert lines[-1].strip("= ").startswith("1 passed, 2 skipped, 1 xfailed in ")


def test_a_run_that_is_interrupted_ends_with_what_it_has_started(tmp_path: Path) -> None:
    waits = (
        "import pathlib, time\ndef test_waits(tmp_path):\n    try:\n"
        "        pathlib.Path('begun').touch()\n        time.sleep(600)\n"
        "    finally:\n        pathlib.Path('undone').touch()\n"
    )
    with start(tmp_path, {"waits": waits}, "strict") as process:
        eventually(lambda: (tmp_path / "begun").exists(), "the test")
        process.send_signal(signal.SIGINT)
        assert process.wait(60 * PATIENCE) == pytest.ExitCode.INTERRUPTED
    assert (tmp_path / "undone").exists()


def test_long_tests_are_left_out_unless_they_are_asked_for() -> None:
    assert selection({"gdb": "", "dot": ""}, has_long=False) == (
        "not speed and not gdb and not dot and not long"
    )
    assert selection({}, has_long=True) == "not speed"


def test_ci_runs_long_tests() -> None:
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("exec make test-all")
    assert "tools.run_tests --all\n" in (ROOT / "Makefile").read_text()


def test_nothing_is_left_out_where_all_is_there() -> None:
    environ = {"MEGATRON_PATH": "/there"}
    assert markers_left_out(True, lambda program: program, lambda: True, environ) == {}
    # No script of the project's can install it, so that it is no failure where all must run.
    left = markers_left_out(True, lambda program: program, lambda: True, {})
    assert left.keys() == GIVEN


def test_what_is_missing_is_left_out_with_the_reason() -> None:
    missing = {"srun", "java", "chromedriver"}
    left = markers_left_out(
        False, lambda program: None if program in missing else program, lambda: False, {}
    )
    assert sorted(left) == ["browser", "fuzz", "megatron_lm", "root", "slurm", "spark"]
    assert all(left.values())


@pytest.mark.parametrize(
    ("ci", "is_root", "strict"),
    [("true", False, True), ("1", False, True), ("", False, False), ("false", False, False),
     ("", True, True)],
)  # fmt: skip
def test_all_must_run_on_cis_machine_and_as_root(ci: str, is_root: bool, strict: bool) -> None:
    assert is_strict({"CI": ci}, is_root) is strict
    assert is_strict({}, is_root) is is_root
