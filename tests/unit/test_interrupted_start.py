"""Ctrl-C that comes while a child is being started ends the child as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from relkit import demo
from relkit.launch import run_command
from relkit.launch.hang.monitor import Monitor
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.launch.netcheck import bad_node
from relkit.linkcheck.tool import run_tool
from relkit.process.bounded_child import run_child
from relkit.process.held_signals import signals_held

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
        lambda: bad_node.act(_SLEEP, "n1", print, 600),
    ],
    ids=["tool", "collector", "demo", "site"],
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
    # Where `run_command` does not handle it, the signal must not end the test run.
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


class Terminated(Exception):
    """SIGTERM came."""


def terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


@pytest.fixture
def sigterm_raises() -> Iterator[None]:
    """SIGTERM is handled, as in the launcher."""
    before = signal.signal(signal.SIGTERM, terminate)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_raises")
@pytest.mark.parametrize(
    "order", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)]
)
def test_of_two_signals_both_handlers_run_and_both_are_put_back(
    order: Sequence[signal.Signals],
) -> None:
    def start() -> None:
        with signals_held():
            for number in order:
                signal.raise_signal(number)

    with pytest.raises(Terminated) as raised:
        start()
    assert isinstance(raised.value.__context__, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is terminate


@pytest.mark.usefixtures("sigterm_raises")
def test_a_signal_before_the_block_has_begun_leaves_every_handler_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install = signal.signal
    installed: list[signal.Signals] = []

    def interrupted(number: signal.Signals, handler: Any) -> Any:  # noqa: ANN401
        installed.append(number)
        if len(installed) == 2:
            # The handler of this one runs, and raises, before it is held as well.
            raise KeyboardInterrupt
        return install(number, handler)

    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(KeyboardInterrupt), signals_held():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is terminate


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_held():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_the_block_is_raised_as_ever() -> None:
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
