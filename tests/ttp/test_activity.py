"""A process that says nothing: at work, asleep, stopped or gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from relkit import procfs
from relkit.launch.recovery.activity import Activity


@contextmanager
def child(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def until_state(pid: int, letter: str) -> None:
    end = time.monotonic() + 10
    while not procfs.process_state(pid).startswith(letter):
        assert time.monotonic() < end
        time.sleep(0.005)


def test_who_computes_is_at_work() -> None:
    # One C call that keeps the interpreter lock.
    with child("print(flush=True); sum(iter(int, 1))") as pid:
        activity = Activity()
        assert [activity.works(pid, now_s) for now_s in (10.0, 11.0, 12.0)] == [True] * 3


def test_who_only_sleeps_is_not() -> None:
    with child("import time; print(flush=True); time.sleep(1000)") as pid:
        until_state(pid, "S")
        activity = Activity()
        assert [activity.works(pid, now_s) for now_s in (10.0, 10.5, 11.5)] == [True, True, False]


def test_who_is_stopped_is_not_at_once() -> None:
    with child("print(flush=True); sum(iter(int, 1))") as pid:
        os.kill(pid, signal.SIGSTOP)
        until_state(pid, "T")
        assert not Activity().works(pid, 10.0)


def test_who_is_gone_is_not() -> None:
    with child("print(flush=True); input()") as pid:
        os.kill(pid, signal.SIGKILL)
        until_state(pid, "Z")
        assert not Activity().works(pid, 10.0)
    assert not Activity().works(pid, 10.0)
