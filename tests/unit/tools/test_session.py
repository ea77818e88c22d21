"""What each run of the tests sets for itself: its folder, Ctrl-C, limits, no process left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.left_processes import children, descendants, end_left
from tests.session import cpu_limit

ROOT = Path(__file__).resolve().parents[3]

RUN = """
import os, signal, subprocess, sys

def test_ctrl_c_is_heard_here_and_in_a_child(tmp_path):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    code = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert str(tmp_path).startswith(os.environ["TMPDIR"] + "/relkit-")
    # Private, and short enough for sockets.
    assert tmp_path.parent.stat().st_mode & 0o077 == 0
    assert len(str(tmp_path.parent)) <= len(os.environ["TMPDIR"]) + len("/relkit-12345678/t")
"""


def test_a_run_in_the_background_hears_ctrl_c_and_its_folder_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_run.py").write_text(RUN)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run(
        # As a shell starts what it does not wait for.
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *argv, str(tmp_path / "test_run.py")],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert not list(temporary.iterdir())


def test_a_limit_is_of_cpu_time() -> None:
    with cpu_limit(0.05):
        time.sleep(0.2)
    with pytest.raises(pytest.fail.Exception, match=r"more than 0\.05 s of CPU"):
        compute(0.05)


def compute(limit_s: float) -> None:
    with cpu_limit(limit_s):
        while True:
            pass


def test_a_process_that_was_left_is_named_and_ended() -> None:
    # A worker of the tests may have some that serve many of them.
    others = children()
    with subprocess.Popen(["sleep", "600"]) as early:
        before = {process.pid for process in descendants()}
        assert children() - others == {early.pid}
        assert early.pid in before
        with subprocess.Popen(["sleep", "500"]) as late:
            assert end_left(before, grace_s=0) == [f"{late.pid} sleep 500"]
            assert late.wait(60) != 0
        assert end_left(before, grace_s=0) == []
        assert early.poll() is None
        early.kill()
    assert children() == others
