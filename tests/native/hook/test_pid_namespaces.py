"""Ranks in PID namespaces of their own: one number, several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from relkit.hook.capture import capture_native
from relkit.hook.model import HookState
from relkit.hook.owner import is_recorded, located, recorder_of_self, writer_lives
from relkit.hook.reader import name_of, read_state, state_files
from relkit.process import procfs
from relkit.process.identity import ProcessFinder, own_namespace
from tests.native.recording import PREAMBLE, Recording, process
from tests.waiting import eventually

pytestmark = [pytest.mark.native, pytest.mark.root]

_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")
_MOUNTS = pytest.mark.parametrize(
    "proc", [(), ("--mount-proc",)], ids=["the host's /proc", "its own"]
)
_WAITS = "load().fake_gemms(2); tell('up'); sys.stdin.readline()"


@contextmanager
def inside(recording: Recording, code: str, *proc: str) -> Iterator[subprocess.Popen[str]]:
    """A Python victim, process 1 of a namespace of its own, that has said "up"."""
    command = [*_NAMESPACE, *proc, sys.executable, "-c", PREAMBLE + code]
    with process(command, {**recording.environment(), "RANK": "0"}) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        yield victim


def states(recording: Recording) -> list[HookState]:
    return [read_state(path) for path in state_files(recording.folder)]


@_MOUNTS
def test_two_of_one_number_have_a_file_each(recording: Recording, proc: tuple[str, ...]) -> None:
    with inside(recording, _WAITS, *proc) as first, inside(recording, _WAITS, *proc) as second:
        recorded = states(recording)
        assert [state.pid for state in recorded] == [1, 1]
        assert [name_of(path) for path in state_files(recording.folder)] == [
            (1, state.pid_namespace) for state in recorded
        ]
        finder = ProcessFinder()
        here = {state.pid for each in recorded if (state := located(each, finder))}
        assert here == {procfs.children(each.pid)[0] for each in (first, second)}
        assert is_recorded(recording.folder)
        # Not the one that has this number here.
        assert recorder_of_self(recording.folder) is None
    eventually(lambda: not is_recorded(recording.folder), "the end of both")


@_MOUNTS
def test_its_threads_are_captured_by_the_numbers_that_they_have_here(
    recording: Recording, proc: tuple[str, ...]
) -> None:
    code = """
load().fake_gemms(1)
stop = threading.Event()
[threading.Thread(target=stop.wait, daemon=True).start() for _ in range(5)]
tell("up")
sys.stdin.readline()
"""
    with inside(recording, code, *proc):
        (path,) = state_files(recording.folder)
        state = located(read_state(path), ProcessFinder())
        assert state is not None
        capture = capture_native(path, state, 10.0)
        assert capture.missed == ()
        assert [t.os_thread_id for t in capture.threads] == list(procfs.thread_ids(state.pid))
        assert len(capture.threads) == 6


def test_one_that_has_ended_is_nobody_that_lives(recording: Recording) -> None:
    finder = ProcessFinder()
    with inside(recording, _WAITS):
        (path,) = state_files(recording.folder)
        assert writer_lives(path, finder)
        before = located(read_state(path), finder)
        assert before is not None

    def is_gone(pid: int = before.pid) -> bool:
        # A runner of tests may be whose child it has become, by prctl(PR_SET_CHILD_SUBREAPER).
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return not procfs.start_ticks(pid)

    eventually(is_gone, "its end")
    assert not writer_lives(path, finder)
    # Its number here stays known, so that it can be said to have ended.
    after = located(read_state(path), finder)
    assert after is not None
    assert after.pid == before.pid
    assert located(read_state(path), ProcessFinder()) is None


def test_times_of_another_clock_are_not_compared_with_this_one(recording: Recording) -> None:
    clock = ("unshare", "--time", "--monotonic", "-1000", "--fork", "--kill-child")
    command = [*clock, sys.executable, "-c", PREAMBLE + _WAITS]
    with process(command, {**recording.environment(), "RANK": "0"}) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        (state,) = states(recording)
        assert procfs.is_same_process(state.pid, state.start_ticks)
        assert located(state, ProcessFinder()) is None


def test_a_launcher_of_another_namespace_is_nobody_in_this_one(recording: Recording) -> None:
    """Under RELKIT_HOOK_FILES its number would make anybody's child the launcher's."""
    variables = recording.environment()
    pid, ticks, namespace, boot = variables["RELKIT_TRACER"].split("/")
    assert (int(pid), int(namespace)) == (os.getpid(), own_namespace())
    code = "load().fake_gemms(1); tell(os.getpid())"
    for number, strange in enumerate(
        (
            f"{pid}/{ticks}/{int(namespace) + 1}/{boot}",
            f"{pid}/{ticks}/{namespace}/x{boot[1:]}",
            f"{pid}/{ticks}/0/{boot}",
            pid,
            "//",
            f"{pid}/{ticks}/{namespace}/",
        )
    ):
        recording.run(code, RELKIT_HOOK_FILES="1", RELKIT_TRACER=strange)
        assert len(state_files(recording.folder)) == 1, (number, strange)
    recording.run(code, RELKIT_HOOK_FILES="1")
    assert len(state_files(recording.folder)) == 2
