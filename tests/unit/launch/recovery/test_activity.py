"""A process that says nothing: at work, asleep, stopped or gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relkit.launch.recovery.activity import Activity
from relkit.process import procfs


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
        activity = Activity(max_idle_s=1.0)
        assert [activity.excuses(pid, now_s) for now_s in (10.0, 11.0, 12.0)] == [True] * 3


def test_who_only_sleeps_is_left_alone_for_a_while() -> None:
    with child("import time; print(flush=True); time.sleep(1000)") as pid:
        until_state(pid, "S")
        activity = Activity(max_idle_s=5.0)
        looks = [activity.excuses(pid, now_s) for now_s in (10.0, 10.5, 11.5, 14.9, 15.1, 16.0)]
        assert looks == [True, True, True, True, False, False]


def test_who_computes_in_between_is_left_alone_again() -> None:
    code = "print(flush=True)\nwhile True: print(input() and sum(range(20_000_000)), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        activity = Activity(max_idle_s=5.0)
        until_state(process.pid, "S")
        assert [activity.excuses(process.pid, now_s) for now_s in (10.0, 14.0)] == [True] * 2
        process.stdin.write(b"go\n")
        process.stdin.flush()
        process.stdout.readline()
        until_state(process.pid, "S")
        looks = [activity.excuses(process.pid, now_s) for now_s in (16.0, 18.0, 20.9, 21.1)]
        process.kill()
    assert looks == [True, True, True, False]


def test_who_is_stopped_is_not_at_once() -> None:
    with child("print(flush=True); sum(iter(int, 1))") as pid:
        os.kill(pid, signal.SIGSTOP)
        until_state(pid, "T")
        assert not Activity(5.0).excuses(pid, 10.0)


def test_who_is_gone_is_not() -> None:
    with child("print(flush=True); input()") as pid:
        os.kill(pid, signal.SIGKILL)
        until_state(pid, "Z")
        assert not Activity(5.0).excuses(pid, 10.0)
    assert not Activity(5.0).excuses(pid, 10.0)


def test_who_cannot_be_looked_at_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc of another PID namespace shows nobody, or a stranger, by that number."""
    monkeypatch.setattr(procfs, "is_own", lambda: False)
    activity = Activity(max_idle_s=1.0)
    with child("import time; print(flush=True); time.sleep(1000)") as pid:
        assert all(activity.excuses(pid, now_s) for now_s in (10.0, 12.0, 14.0, 16.0))
