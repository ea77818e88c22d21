"""Who holds the interpreter lock in native code, and who does not although it looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.hang.activity import ThreadState
from relkit.hang.attribute import attribute
from relkit.hang.gil import gil_holder
from relkit.hang.model import Category
from relkit.hang.stackclass import classify
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from tests.unit.hang.hang_builders import named, others_wait, trained, view

MAIN, OTHER = 1001, 77
LIBC = "/usr/lib/libc.so.6"


def python(number: int, line: str, *, owns_gil: bool = False, state: str = "S") -> ThreadStack:
    frames = (
        Frame("hold", f"/home/user/examples/{line}"),
        Frame("run", "/home/user/examples/x.py:1"),
    )
    role = Role.MAIN if number == MAIN else Role.OTHER
    return ThreadStack(number, f"t{number}", frames, role, state=state, owns_gil=owns_gil)


def native(number: int, *functions: str) -> ThreadStack:
    role = Role.MAIN if number == MAIN else Role.OTHER
    return ThreadStack(number, "python", tuple(Frame(f, LIBC) for f in functions), role, state="S")


WANTS = (
    "__futex_abstimed_wait_common",
    "pthread_cond_timedwait",
    "take_gil",
    "PyEval_RestoreThread",
)
HOLDS = ("__lll_lock_wait", "pthread_mutex_lock", "ffi_call", "_ctypes_callproc")


def dump(*, main_holds: bool = True, holds: tuple[str, ...] = HOLDS, state: str = "S") -> RankDump:
    holder, wants = (MAIN, OTHER) if main_holds else (OTHER, MAIN)
    return RankDump(
        1, 4, MAIN, "S",
        python=(python(MAIN, "a.py:3", owns_gil=main_holds, state=state),
                python(OTHER, "b.py:4", owns_gil=not main_holds, state=state)),
        native=(native(holder, *holds), native(wants, *WANTS)),
    )  # fmt: skip


def test_the_main_thread_holds_it() -> None:
    activity = classify(dump())
    assert activity.thread_state is ThreadState.GIL_HELD
    assert activity.sentence() == (
        "in examples/a.py:3 hold, holding the interpreter lock in native code"
    )
    assert activity.gil == (
        "the main thread holds the interpreter lock in examples/a.py:3 hold, in "
        "pthread_mutex_lock, and another thread wants it"
    )


def test_another_thread_holds_it_and_the_main_thread_wants_it() -> None:
    activity = classify(dump(main_holds=False))
    assert activity.thread_state is ThreadState.GIL_HELD
    assert activity.place == "examples/b.py:4 hold"
    assert activity.gil.startswith("its thread t77 holds the interpreter lock in examples/b.py:4")


def test_the_rank_is_named_for_it() -> None:
    hung = view(1, 4, hook=trained(1, 4), dump=dump())
    verdict = attribute(others_wait(hung))
    assert named(verdict) == [(1, Category.GIL_HELD)]
    assert verdict.culprits[0].reasons[0].startswith("the main thread holds the interpreter lock")


@pytest.mark.parametrize(
    "dump",
    [
        dump(state="R"),
        dump(holds=("pthread_cond_wait", "c10d::ProcessGroupGloo::wait")),
        dump(holds=("poll", "cudaStreamSynchronize")),
        dump(holds=("clock_nanosleep", "pysleep", "time_sleep")),
        dump(holds=("__futex_abstimed_wait_common", "sem_wait", "PyThread_acquire_lock_timed")),
        dump(holds=WANTS),
        replace(dump(), native=dump().native[:1]),
        replace(dump(), native=()),
        replace(dump(), python=tuple(replace(t, owns_gil=False) for t in dump().python)),
    ],
    ids=["runs", "collective", "device", "sleeps in Python", "Python's lock", "wants it itself",
         "nobody wants it", "no native stacks", "nobody has it"],
)  # fmt: skip
def test_nobody_holds_it(dump: RankDump) -> None:
    assert gil_holder(dump) is None
    assert classify(dump).thread_state is not ThreadState.GIL_HELD


def test_a_thread_that_works_beside_it_is_not_called_stuck() -> None:
    """The main thread is elsewhere in native code, and wants no lock."""
    beside = dump(main_holds=False)
    free = (beside.native[0], native(MAIN, "poll"), native(99, *WANTS))
    assert classify(replace(beside, native=free)).thread_state is not ThreadState.GIL_HELD
