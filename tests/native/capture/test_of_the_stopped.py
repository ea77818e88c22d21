"""A thread that was asked for its stack and then stopped is given up, not waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from relkit.hook.capture import _Silent
from relkit.hook.threads import thread_status

pytestmark = [pytest.mark.native, pytest.mark.timeout(30)]


def test_stopped_after_the_question_and_gone_after_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        silent, missed = _Silent(process.pid), dict[int, str]()
        waiting = {process.pid}
        process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        while not silent.for_good(waiting, missed):
            assert time.monotonic() - begin < 20.0
        assert missed == {process.pid: "stopped (state T)"}
        # One that goes on may yet answer.
        process.send_signal(signal.SIGCONT)
        while (status := thread_status(process.pid, process.pid)) and status.state == "T":
            assert time.monotonic() - begin < 20.0
        awake = _Silent(process.pid)
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            assert awake.for_good(waiting, missed) == set()
    finally:
        process.kill()
        process.communicate()
    assert thread_status(process.pid, process.pid) is None
    while not silent.for_good(waiting, missed):
        assert time.monotonic() - begin < 20.0
    assert missed == {process.pid: "ended meanwhile"}
