"""A thread that holds Python's interpreter lock while it sleeps in native code.

Python itself never sleeps with the lock held: it is an extension, or a call by ctypes, that waits
for something and has not released it. All other Python threads of the process stand still.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from relkit.hang.activity import WAITS_FOR_PEERS
from relkit.hang.frames import place, printable, user_depth
from relkit.hang.stackrules import by_native
from relkit.stacks.model import Frame, RankDump, ThreadStack

_TAKES = re.compile(r"take_gil|PyEval_(Acquire|Restore)Thread")
# Python's own waits release the lock: such a thread had it a moment later, when it was asked.
_RELEASES = re.compile(
    r"pysleep|time_sleep|PyThread_acquire_lock|acquire_timed|rlock_acquire|sock_call|"
    r"select_(select|poll|epoll)|os_(read|write|wait)"
)
# Between the wait for the lock and the call that asks for it lie a few functions of libc.
_DEPTH = 8
# What says only that a thread waits, and not for what.
_WAITS = re.compile(r"__|futex|syscall|pthread_cond_|sem_(timed|clock)?wait")


@dataclass(frozen=True, slots=True)
class GilHolder:
    """The thread that has the lock.

    Args:
        os_thread_id: of it; name: its name.
        place: its innermost line of the job's own code, "" where there is none.
        inside: the native function that it waits in, "" where not known.
        waiting: how many threads want the lock; their ids.
    """

    os_thread_id: int
    name: str
    place: str
    inside: str
    waiting: frozenset[int]


def gil_holder(dump: RankDump) -> GilHolder | None:
    """Who holds the lock and sleeps, while another thread wants it; None for nobody.

    Args:
        dump: with Python stacks (they say who has it) and native ones (they say who wants it).
    """
    native = {thread.os_thread_id: thread for thread in dump.native}
    waiting = frozenset(number for number, thread in native.items() if _wants(thread))
    for thread in dump.python:
        below = native.get(thread.os_thread_id)
        if not thread.owns_gil or thread.state not in ("S", "D") or below is None:
            continue
        # A thread in a collective waits for other ranks: they decide, not the lock.
        if thread.os_thread_id in waiting or by_native(below.frames) in WAITS_FOR_PEERS:
            continue
        if any(_RELEASES.search(frame.func) for frame in below.frames[:_DEPTH]):
            continue
        if not waiting:
            return None
        depth = user_depth(thread.frames)
        return GilHolder(
            os_thread_id=thread.os_thread_id,
            name=printable(thread.name),
            place="" if depth is None else place(thread.frames[depth]),
            inside=_inside(below.frames),
            waiting=waiting,
        )
    return None


def _wants(thread: ThreadStack) -> bool:
    return any(_TAKES.search(frame.func) for frame in thread.frames[:_DEPTH])


def _inside(frames: tuple[Frame, ...]) -> str:
    return next((printable(f.func) for f in frames if not _WAITS.match(f.func)), "")
