"""Native stacks of all threads of a process, taken by the hook inside it."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.errors import CaptureFailed
from relkit.hook import layout, request
from relkit.hook.interruptible import WAITS_FOR_SIGNALS, Interruptible
from relkit.hook.model import HookState
from relkit.hook.state_file import StateFile, open_state_file
from relkit.hook.threads import (
    ThreadStatus,
    run_time_ns,
    thread_status,
    thread_statuses,
)
from relkit.process import procfs

# Half of the hook's entries, so that two collectors at once do not overwrite each other's answers.
BATCH = 128
_POLL_S = 0.0002
_UNBLOCK_GRACE_S = 0.1
_LOOK_AGAIN_S = 0.02
# Longer than a debugger or py-spy holds a thread to read it.
_STOPPED_GRACE_S = 0.25
# A thread blocks all signals for some microseconds, as it is born, ends, loads a library or answers
# another collector. Without a core these take as long as it has none.
_HARDLY_RAN_NS = 1_000_000

_BLOCKED = "blocks the hook's signal"
_ENDED = "ended meanwhile"

_UNREACHABLE = {
    "D": "in uninterruptible sleep (state D)",
    "T": "stopped (state T)",
    "t": "stopped by a debugger (state t)",
    "Z": "a zombie",
    "X": "dead",
}
_MAY_PASS = (_BLOCKED, _UNREACHABLE["D"], WAITS_FOR_SIGNALS)
# What a thread does not leave by itself.
_NEEDS_HELP = frozenset("TtZX")


@dataclass(frozen=True, slots=True)
class RawThread:
    """One thread's stack as addresses.

    Args:
        os_thread_id: kernel thread id; name: its comm; state: one letter of /proc.
        addresses: innermost first. The first is the program counter itself, the others are
            return addresses: look those up one byte lower.
        truncated: the stack is deeper than the hook has room for.
    """

    os_thread_id: int
    name: str
    state: str
    addresses: tuple[int, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class NativeCapture:
    """All that one capture brought.

    Args:
        threads: by thread id.
        missed: (thread id, reason) of those that could not be read.
        wall_s: how long the whole took; longest_freeze_s: the longest that one thread spent on
            it, as the thread itself measured.
    """

    threads: tuple[RawThread, ...]
    missed: tuple[tuple[int, str], ...]
    wall_s: float
    longest_freeze_s: float


def capture_native(path: Path, state: HookState, deadline_s: float) -> NativeCapture:
    """Ask every thread of a live process for its native stack.

    Nothing is stopped: each thread runs a signal handler of some microseconds, also while it is
    blocked in a system call, and then goes on with what it did.

    Args:
        path: the process's recorder file; state: what read_state made of it.
        deadline_s: longest time to wait for answers, seconds.

    Raises:
        CaptureFailed: the process is gone, or its hook cannot capture.
        BadDump: the recorder file has become unreadable.
    """
    begin = time.monotonic()
    with open_state_file(path) as file:
        signal_number = _signal_to_send(file, state)
        try:
            threads = thread_statuses(state.pid)
        except ProcessLookupError as error:
            raise CaptureFailed(str(error)) from error
        answers: dict[int, np.void] = {}
        missed: dict[int, str] = {}
        for at in range(0, len(threads), BATCH):
            batch = threads[at : at + BATCH]
            left_s = max(0.0, deadline_s - (time.monotonic() - begin))
            answers |= _ask(file, state.pid, signal_number, batch, left_s, missed)
    freezes = [int(row["end_ns"]) - int(row["begin_ns"]) for row in answers.values()]
    return NativeCapture(
        threads=tuple(
            _thread(t, answers[t.os_thread_id]) for t in threads if t.os_thread_id in answers
        ),
        missed=tuple(sorted(missed.items())),
        wall_s=time.monotonic() - begin,
        longest_freeze_s=max(freezes, default=0) / 1e9,
    )


def _signal_to_send(file: StateFile, state: HookState) -> int:
    number = int(file.header["capture_signal"])
    if not signal.SIGRTMIN <= number <= signal.SIGRTMAX:
        note = layout.CAPTURE_NOTES.get(int(file.header["capture_note"]), "")
        raise CaptureFailed(
            f"the hook in process {state.pid} cannot capture: {note or 'no signal'}"
        )
    ensure_handler(state, number)
    return number


def ensure_handler(state: HookState, signal_number: int) -> None:
    """Make sure that the signal reaches the hook's handler, as it would kill a process without.

    Raises:
        CaptureFailed: another process has the pid now, or the handler is gone.
    """
    if not state.start_ticks or procfs.start_ticks(state.pid) != state.start_ticks:
        raise CaptureFailed(f"process {state.pid} has ended")
    status = thread_status(state.pid, state.pid)
    if status is None or not status.handles(signal_number):
        raise CaptureFailed(f"process {state.pid} has replaced the hook's signal handler")


def _ask(
    file: StateFile,
    pid: int,
    signal_number: int,
    threads: Iterable[ThreadStatus],
    left_s: float,
    missed: dict[int, str],
) -> dict[int, np.void]:
    begin = time.monotonic()
    generation = request.new_generation()
    unasked = {thread.os_thread_id: thread for thread in threads}
    # By the number under which a thread answers.
    names = {thread.own_id or tid: tid for tid, thread in unasked.items()}
    had_ns: dict[int, int | None] = {}
    asked: set[int] = set()
    silent = _Silent(pid)
    interruptible = Interruptible(pid)
    answers: dict[int, np.void] = {}
    while True:
        for tid, thread in list(unasked.items()):
            reason = _send(pid, thread, signal_number, generation, interruptible)
            if reason is None:
                asked.add(tid)
            elif reason in _MAY_PASS:
                missed[tid] = reason
                if tid not in had_ns:
                    had_ns[tid] = run_time_ns(pid, tid)
                continue
            else:
                missed[tid] = reason
            del unasked[tid]
        answers |= _answers(file, generation, names, asked)
        asked -= silent.for_good(asked - answers.keys(), missed)
        waited_s = time.monotonic() - begin
        if waited_s >= left_s or (
            asked <= answers.keys() and not _may_unblock(pid, unasked, had_ns, waited_s)
        ):
            break
        time.sleep(_POLL_S)
        # A thread that blocks all signals, or waits for the memory map in state D, for a moment is
        # asked again. One that stays so is not left with a pending signal, which would kill it
        # after an exec.
        for tid in list(unasked):
            status = thread_status(pid, tid)
            if status is None:
                missed[tid] = _ENDED
                del unasked[tid]
            else:
                unasked[tid] = status
    for tid in asked - answers.keys():
        status = thread_status(pid, tid)
        missed[tid] = (
            _ENDED if status is None else _UNREACHABLE.get(status.state, "did not answer in time")
        )
    for tid in answers:
        missed.pop(tid, None)
    return answers


def _may_unblock(
    pid: int,
    unasked: Mapping[int, ThreadStatus],
    had_ns: Mapping[int, int | None],
    waited_s: float,
) -> bool:
    """Whether one of the threads that could not be asked will soon be ready for it."""
    if waited_s < _UNBLOCK_GRACE_S:
        return bool(unasked)
    # On a busy host it takes longer until a thread gets a core.
    return any(
        thread.state == "R" and _has_hardly_run(pid, tid, had_ns.get(tid))
        for tid, thread in unasked.items()
    )


def _has_hardly_run(pid: int, tid: int, had_ns: int | None) -> bool:
    now_ns = run_time_ns(pid, tid)
    return had_ns is not None and now_ns is not None and now_ns - had_ns < _HARDLY_RAN_NS


class _Silent:
    """Threads that were asked and cannot answer: they ended, or were stopped at that moment."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped_since: dict[int, float] = {}
        self._next_look_s = time.monotonic() + _LOOK_AGAIN_S

    def for_good(self, waiting: set[int], missed: dict[int, str]) -> set[int]:
        """Those of the waiting that it is no use to wait for; their reasons go to `missed`."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return set()
        self._next_look_s = now_s + _LOOK_AGAIN_S
        lost: dict[int, str] = {}
        for tid in waiting:
            status = thread_status(self._pid, tid)
            if status is None:
                lost[tid] = _ENDED
            elif status.state not in _NEEDS_HELP:
                self._stopped_since.pop(tid, None)
            elif now_s - self._stopped_since.setdefault(tid, now_s) >= _STOPPED_GRACE_S:
                lost[tid] = _UNREACHABLE[status.state]
        missed.update(lost)
        return set(lost)


def _send(
    pid: int,
    thread: ThreadStatus,
    signal_number: int,
    generation: int,
    interruptible: Interruptible,
) -> str | None:
    """Ask one thread; the reason where that cannot be."""
    if thread.state in _UNREACHABLE:
        return _UNREACHABLE[thread.state]
    if thread.blocks(signal_number):
        return _BLOCKED
    harm = interruptible.why_not(thread.os_thread_id)
    if harm:
        return harm
    try:
        request.send(pid, thread.os_thread_id, signal_number, layout.REQUEST_CAPTURE, generation)
    except ProcessLookupError:
        return _ENDED
    except OSError as error:
        queue_full = error.errno == errno.EAGAIN
        return f"cannot be signalled: {'too many are queued' if queue_full else error.strerror}"
    return None


def _answers(
    file: StateFile, generation: int, names: Mapping[int, int], tids: set[int]
) -> dict[int, np.void]:
    offset, count = int(file.header["captures_at"]), int(file.header["capture_count"])
    before = file.rows(offset, layout.CAPTURE, count)
    sequence_after = file.rows(offset, layout.CAPTURE, count)["seq"]
    settled = (before["seq"] == sequence_after) & (before["seq"] % 2 == 0)
    mine = before[settled & (before["generation"] == generation)]
    named = {names.get(int(row["tid"]), 0): row for row in mine}
    return {tid: row for tid, row in named.items() if tid in tids}


def _thread(thread: ThreadStatus, row: np.void) -> RawThread:
    depth = min(int(row["depth"]), layout.CAPTURE_DEPTH)
    return RawThread(
        os_thread_id=thread.os_thread_id,
        name=thread.name,
        state=thread.state,
        addresses=tuple(int(address) for address in row["address"][:depth]),
        truncated=bool(int(row["truncated"])),
    )
