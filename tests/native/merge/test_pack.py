"""Intervals as bits by the native library: the bits that Python makes, and never more than fits."""

from __future__ import annotations

import ctypes
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.stacks.native_merge import load_library
from tests.native.merge.test_native import SHARED, library

__all__ = ("library",)
pytestmark = pytest.mark.native

SIZE_BYTES = 9
BEHIND = b"\0" * 8

spans = st.lists(
    st.tuples(st.integers(0, 8 * SIZE_BYTES - 1), st.integers(0, 40)).map(
        lambda span: (span[0], min(span[0] + span[1], 8 * SIZE_BYTES - 1))
    ),
    max_size=12,
)


def packed(
    library: Path, intervals: list[tuple[int, int]], size: int, before: bytes = b""
) -> tuple[bool, bytes]:
    """(taken, the bytes, with eight more behind the `size` that the library may use)."""
    loaded = load_library(library)
    assert loaded is not None
    ends = array("i", [end for interval in intervals for end in interval])
    room = ctypes.create_string_buffer(before.ljust(size, b"\0") + BEHIND, size + len(BEHIND))
    taken = loaded.rkm_pack(ends.buffer_info()[0], len(intervals), room, size)
    return bool(taken), room.raw


@SHARED
@given(intervals=spans, before=st.binary(max_size=SIZE_BYTES))
def test_any_intervals_in_any_order(
    library: Path, intervals: list[tuple[int, int]], before: bytes
) -> None:
    taken, raw = packed(library, intervals, SIZE_BYTES, before)
    bits = RankSet.from_intervals(intervals).bits() | int.from_bytes(before, "little")
    assert taken
    assert raw == bits.to_bytes(SIZE_BYTES, "little") + BEHIND


@pytest.mark.parametrize(
    ("interval", "taken"),
    [
        ((15, 15), True),
        ((16, 16), False),
        ((0, 16), False),
        ((3, 2), False),
        ((-1, 2), False),
        ((0, (1 << 31) - 1), False),
    ],
)
def test_what_has_no_place_is_refused(
    library: Path, interval: tuple[int, int], taken: bool
) -> None:
    said, raw = packed(library, [interval], 2)
    assert said == taken
    assert raw.endswith(BEHIND)
