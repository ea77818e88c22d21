"""Stacks as frames by number: what was read comes back, or it is said that memory ran out."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from relkit.stacks import native_merge
from relkit.stacks.dumpfile import encode
from relkit.stacks.model import Frame, RankDump, ThreadStack
from relkit.stacks.native_merge import NativeContext
from relkit.stacks.stack_index import StackIndex
from tests.native.merge.test_native import library

__all__ = ("library",)
pytestmark = pytest.mark.native

NAME = "00000-00001.stacktrace"
DISTINCT = 20_000


def gathered(library: Path, dump: RankDump, budget_bytes: int = 1 << 30) -> StackIndex | None:
    """What was read of a dump; None where even that did not fit."""
    loaded = native_merge.load_library(library)
    assert loaded is not None
    index = StackIndex()
    with NativeContext(loaded, budget_bytes) as context:
        if context.add(encode(dump), NAME).status != 0:
            return None
        context.fill(index, rank_bytes=1)
    return index


def test_frames_of_several_stacks_and_of_none(library: Path) -> None:
    a, b = Frame("a", "x"), Frame("b", "x")
    called = Frame("f", "y.py:3", entry=False)
    entered = Frame("f", "y.py:3")
    native = [ThreadStack(1, "t", (a, b, a)), ThreadStack(2, "t", ()), ThreadStack(3, "t", (b,))]
    python = [ThreadStack(1, "t", (called, entered)), ThreadStack(9, "t", ())]
    index = gathered(library, RankDump(0, 1, 1, "S", tuple(native), tuple(python)))
    assert index is not None
    pairs = {(native, python) for native, python, _, _ in index.threads()}
    assert pairs == {((a, b, a), (called, entered)), ((), None), ((b,), None), (None, ())}


def test_a_stack_that_is_not_there_is_refused(library: Path) -> None:
    loaded = native_merge.load_library(library)
    assert loaded is not None
    one = RankDump(0, 1, 1, "S", (ThreadStack(1, "t", (Frame("f", "x"),)),))
    with NativeContext(loaded) as context:
        context.add(encode(one), NAME)
        said = []
        for number in (0, 1, 2**32 - 1):
            frames, count = ctypes.c_void_p(), ctypes.c_uint32(7)
            status = loaded.rkm_stack(context._handle, number, frames, count)
            said.append((status == 0, count.value))
    assert said == [(True, 1), (False, 0), (False, 0)]


def test_memory_that_ends_between_the_stacks_and_their_frames(library: Path) -> None:
    # As many distinct frames as make the table of frames larger than what reading leaves.
    threads = tuple(
        ThreadStack(at, "t", tuple(Frame(f"f{at}-{i}", "s" * 60) for i in range(40)))
        for at in range(1, DISTINCT // 40 + 1)
    )
    dump = RankDump(0, 1, 1, "S", threads)
    outcomes = []
    for budget in range(1, 14):
        try:
            index = gathered(library, dump, budget << 20)
        except MemoryError:
            outcomes.append("frames")
        else:
            outcomes.append("none" if index is None else "all")
    # More memory never makes it worse, and there is a budget for each of the three.
    assert outcomes == sorted(outcomes, key=["none", "frames", "all"].index)
    assert set(outcomes) == {"none", "frames", "all"}
