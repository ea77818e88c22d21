"""Ctrl-C that comes while a child is being started ends the child as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relkit import demo
from relkit.bounded_child import run_child
from relkit.held_signals import signals_held
from relkit.launch import run_command
from relkit.launch.hang.monitor import Monitor
from relkit.launch.job.settings import MonitorSettings, OnHang
from relkit.linkcheck.tool import run_tool

pytestmark = pytest.mark.timeout(60)

_SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Processes that were started; each time Ctrl-C comes before the caller has got the object."""
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def interrupted(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        begun.append(popen(argv, **options))
        signal.raise_signal(signal.SIGINT)
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    return begun


@pytest.mark.parametrize(
    "start",
    [
        lambda: run_tool(_SLEEP, 600),
        lambda: run_child(_SLEEP, 600),
        lambda: demo._run(_SLEEP, os.environ, None, 600),
    ],
    ids=["tool", "collector", "demo"],
)
def test_the_child_is_ended(
    children: list[subprocess.Popen[bytes]], start: Callable[[], object]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        start()
    (child,) = children
    try:
        assert child.returncode is not None
    finally:
        child.kill()
        child.wait()


def test_a_command_gets_the_signal_that_came_before_it_ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = run_command.start
    begun: list[subprocess.Popen[bytes]] = []

    def interrupted(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        begun.append(start(command, environ))
        signal.raise_signal(signal.SIGTERM)
        return begun[-1]

    monkeypatch.setattr(run_command, "start", interrupted)
    log: list[str] = []
    monitor = Monitor(
        MonitorSettings(600.0, OnHang.REPORT), publish=lambda *_: None,
        write_dumps=lambda _: None, log=log.append,
    )  # fmt: skip
    # Else, where that fails, the signal ends the test run.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = run_command.run_command(
            _SLEEP, os.environ, job_id="early", job_dir=tmp_path, monitor=monitor,
            on_hang=OnHang.REPORT, log=log.append,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, before)
        for child in begun:
            child.kill()
            child.wait()
    assert code == 128 + signal.SIGTERM


def test_signals_wait_for_the_end_of_the_block() -> None:
    done = []

    def start() -> None:
        with signals_held():
            signal.raise_signal(signal.SIGINT)
            done.append("block")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_is_not_lost_to_them() -> None:
    with pytest.raises(OSError, match="no such"), signals_held():
        raise OSError("no such")


def test_other_threads_start_children_as_ever() -> None:
    ran = []

    def start() -> None:
        with signals_held():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]
