"""`relkit k8s stop` ends launchers, and nothing that only looks like one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from relkit.kubernetes import stop_launchers
from tests.patience import PATIENCE

# Ends at SIGTERM, as a launcher that has saved does; says when it can.
LAUNCHER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ("/opt/relkit/bin/relkit launch --nnodes 4 train.py", True),
        ("/usr/bin/python3.11 /opt/bin/relkit launch train.py", True),
        ("python -m relkit launch train.py", True),
        ("python3 /opt/bin/relkit --log-format json launch train.py", True),
        ("relkit k8s stop", False),
        ("python /opt/bin/relkit store --bind 0.0.0.0", False),
        ("vim relkit launch", False),
        ("python train.py --kit relkit-launch", False),
        ("", False),
    ],
)
def test_what_is_a_launcher(words: str, is_one: bool) -> None:
    assert stop_launchers.is_launcher(words.split()) is is_one


def test_a_shell_that_starts_one_is_none() -> None:
    assert not stop_launchers.is_launcher(["bash", "-c", "relkit launch train.py"])


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "relkit"
    script.write_text(LAUNCHER, encoding="utf-8")
    # As in a container whose process 1 is a shell, which passes no signal on.
    with subprocess.Popen(
        [sys.executable, str(script), "launch", "train.py"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_launcher_is_asked_to_end_and_waited_for(
    launcher: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests' launchers may be in the same control group: only this one is looked at.
    process = psutil.Process(launcher.pid)
    monkeypatch.setattr(psutil, "process_iter", lambda: iter([process]))
    lines: list[str] = []
    assert stop_launchers.stop_launchers(60 * PATIENCE, lines.append) == 0
    assert not psutil.pid_exists(launcher.pid)
    assert lines == [f"asked to save and end: process {launcher.pid}"]
    assert stop_launchers.stop_launchers(1, lines.append) == 0
    assert lines[-1] == "no relkit launch runs here"


def test_launchers_of_other_groups_are_left(
    launcher: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = stop_launchers._group(os.getpid())
    monkeypatch.setattr(
        stop_launchers, "_group", lambda pid: "0::/other" if pid == launcher.pid else here
    )
    assert launcher.pid not in {each.pid for each in stop_launchers.launchers_here()}


def test_launchers_of_other_users_are_left(
    launcher: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launcher.pid in {each.pid for each in stop_launchers.launchers_here()}
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    assert launcher.pid not in {each.pid for each in stop_launchers.launchers_here()}


def test_what_a_launcher_has_forked_is_none(tmp_path: Path) -> None:
    script = tmp_path / "relkit"
    # The child has its parent's command line, and ends with it.
    script.write_text(
        "import os, sys\n"
        "child = os.fork()\n"
        "if child:\n    print(child, flush=True)\n"
        "sys.stdin.read()\n"
        "if child:\n    os.waitpid(child, 0)\n",
        encoding="utf-8",
    )
    with subprocess.Popen(
        [sys.executable, str(script), "launch", "train.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert stop_launchers.is_launcher(psutil.Process(child).cmdline())
        found = {each.pid for each in stop_launchers.launchers_here()}
        assert found & {process.pid, child} == {process.pid}
