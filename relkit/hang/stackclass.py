"""What a rank's main thread is doing, judged by its stacks and by where the kernel has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hang.activity import Activity, ThreadState
from relkit.hang.frames import is_user_code, place, user_depth
from relkit.hang.gil import GilHolder, gil_holder
from relkit.hang.model import RankView
from relkit.hang.stackrules import (
    by_framework,
    by_kernel,
    by_native,
    by_python,
    ends_interpreter,
    in_import,
)
from relkit.hook.model import Op, OpKind
from relkit.ranks import RankSet
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

_MAX_OTHERS = 3


def main_thread(threads: Sequence[ThreadStack], pid: int) -> ThreadStack | None:
    """The process's first thread, by kernel id, else by role or by Python's name for it."""
    by_id = [t for t in threads if pid > 0 and t.os_thread_id == pid]
    named = [t for t in threads if t.role is Role.MAIN or t.name == "MainThread"]
    return next(iter(by_id + named), None)


# What native frames may show below code of torch.distributed that works, and does not wait.
_WORKS = (ThreadState.COMPUTE, ThreadState.GC, ThreadState.FILE, ThreadState.CHILD)


def classify(dump: RankDump | None, in_flight: Sequence[Op] | None = ()) -> Activity:
    """What the main thread does.

    Python frames speak first, because they name the user's line. A wait that Python cannot see
    into (the innermost frame is user code, yet the thread sleeps) is settled by native frames,
    then by the recorder, then by the kernel.

    Args:
        dump: the rank's stacks, None where there are none.
        in_flight: the recorder's operations in flight; None where the rank has no recorder.
    """
    waits = _by_recorder(in_flight or ())
    if dump is None:
        return Activity(waits or ThreadState.UNKNOWN)
    python, native = main_thread(dump.python, dump.pid), main_thread(dump.native, dump.pid)
    either = python or native
    if either is None:
        return Activity(waits or ThreadState.UNKNOWN)
    frames = python.frames if python else ()
    depth = user_depth(frames)
    library = frames if depth is None else frames[:depth]
    kernel = (python.kernel if python else "") or (native.kernel if native else "")
    state = either.state or dump.process_state[:1]
    holder = gil_holder(dump)
    main_id = either.os_thread_id
    if holder is not None and waits is None and main_id in (holder.os_thread_id, *holder.waiting):
        # Whichever thread it is: its line is the one to blame, and all others wait for it.
        return Activity(
            ThreadState.GIL_HELD,
            place=holder.place or ("" if depth is None else place(frames[depth])),
            kernel=kernel if kernel != "0" else "",
            others=_others(dump, main_id),
            gil=_gil(holder, main_id),
        )
    return Activity(
        _decide(frames, library, native, kernel, state, waits, has_recorder=in_flight is not None),
        place="" if depth is None else place(frames[depth]),
        leaf=place(frames[0]) if frames and depth != 0 else "",
        kernel=kernel if kernel != "0" else "",
        runs=state == "R",
        others=_others(dump, main_id),
        exits=ends_interpreter(frames, native.frames if native else ()),
    )


# Calls in which a group is made.
SETUP = ("connect", "comm_init", "comm_split")


def _by_recorder(in_flight: Sequence[Op]) -> ThreadState | None:
    kinds = {op.kind for op in in_flight}
    if OpKind.P2P in kinds:
        return ThreadState.P2P
    if OpKind.COLLECTIVE in kinds:
        setup = all(op.name in SETUP for op in in_flight if op.kind is OpKind.COLLECTIVE)
        return ThreadState.SETUP if setup else ThreadState.COLLECTIVE
    return ThreadState.COMPUTE if OpKind.GEMM in kinds or OpKind.KERNEL in kinds else None


def _decide(
    frames: Sequence[Frame],
    library: Sequence[Frame],
    native: ThreadStack | None,
    kernel: str,
    state: str,
    recorded: ThreadState | None,
    *,
    has_recorder: bool,
) -> ThreadState:
    inside = in_import(library)
    by_stack = by_python(library) if inside is None else by_python(inside) or ThreadState.IMPORT
    if by_stack is None and frames and not library:
        by_stack = by_framework(frames[0])
    below = by_native(native.frames) if native else None
    if (
        by_stack in (ThreadState.COLLECTIVE, ThreadState.SETUP, ThreadState.P2P)
        and state == "R"
        and recorded is None
    ):
        if has_recorder and by_stack is not ThreadState.P2P:
            # The recorder sees no call in flight: this code is preparing one.
            by_stack = ThreadState.RUNNING
        elif below in _WORKS:
            by_stack = below
        # Else it waits: on a device's operation the main thread waits by spinning.
    if by_stack is ThreadState.BACKWARD and (state == "R" or has_recorder or below is not None):
        # It may as well compute: whatever tells more counts.
        by_stack = None
    if by_stack is None and by_python(frames[len(library) :]) is ThreadState.DATA:
        by_stack = ThreadState.DATA  # a data set's own code, called by the loader
    if by_stack is not None:
        return by_stack
    if below is not None and not (below is ThreadState.LOCK and recorded is ThreadState.SETUP):
        return below
    if state == "R":
        return recorded if recorded is ThreadState.COMPUTE else ThreadState.RUNNING
    if recorded is not None:
        return recorded
    return by_kernel(kernel) or ThreadState.UNKNOWN


def _gil(holder: GilHolder, main_id: int) -> str:
    """Who has the interpreter lock, where, and how many want it."""
    who = "the main thread" if holder.os_thread_id == main_id else f"its thread {holder.name}"
    where = f" in {holder.place}" if holder.place else ""
    inside = f", in {holder.inside}" if holder.inside else ""
    count = len(holder.waiting)
    wants = "another thread wants" if count == 1 else f"{count} other threads want"
    return f"{who} holds the interpreter lock{where}{inside}, and {wants} it"


def _others(dump: RankDump, main_id: int) -> tuple[str, ...]:
    """Other threads in user code, and loaders: one may hold what the main thread waits for."""
    others = []
    for thread in dump.python:
        depth = user_depth(thread.frames)
        if thread.os_thread_id == main_id or thread.role is Role.MAIN or not thread.frames:
            continue
        if depth is None and thread.role is not Role.LOADER:
            continue
        frame = thread.frames[0 if depth is None else depth]
        inner = thread.frames if depth is None else thread.frames[:depth]
        thread_state = by_python(inner) or by_kernel(thread.kernel)
        what = f", {Activity(thread_state).phrase}" if thread_state else ""
        others.append(f"{thread.name or 'a thread'} in {place(frame)}{what}")
    return tuple(others[:_MAX_OTHERS])


def not_in_calls(views: Mapping[int, RankView], activities: Mapping[int, Activity]) -> bool:
    """Whether these are dumps alone, in which no call is open: so are those of an ended job.

    Args:
        views, activities: of all ranks.
    """
    known = [rank for rank, view in views.items() if not view.absent_reason]
    return len(known) > 1 and not any(activities[rank].known for rank in known)


def at_work(views: Mapping[int, RankView], activities: Mapping[int, Activity]) -> RankSet:
    """All ranks, where the stacks show each at work; else none.

    Args:
        views, activities: of all ranks.
    """
    ranks = RankSet.of(rank for rank, view in views.items() if not view.absent_reason)
    work = (
        views[rank].alive
        and views[rank].hook is None
        and activities[rank].runs
        and activities[rank].may_be_busy
        for rank in ranks
    )
    return ranks if all(work) else RankSet()


__all__ = ["at_work", "classify", "is_user_code", "main_thread", "not_in_calls"]
