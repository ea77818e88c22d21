"""Ranks as text by the native library: the text that Python writes, and never more than fits."""

from __future__ import annotations

import ctypes
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import FEW, MAX_BITS, RankSet
from relkit.stacks.native_fold import native_fold
from relkit.stacks.native_merge import load_library
from tests.native.merge.test_native import SHARED, library

__all__ = ("library",)
pytestmark = pytest.mark.native

NO_ROOM = (1 << 64) - 1
MARK = b"\xaa"
# Up to three words of bits, of which the last may be cut off.
few = st.sets(st.integers(0, 170), max_size=60)
steps = st.lists(st.integers(1, 4), max_size=60)


def written(library: Path, ranks: set[int], room: int) -> tuple[int, str, bytes]:
    """What the library says it wrote into `room` characters, the text, and what stands behind."""
    loaded = load_library(library)
    assert loaded is not None
    bits = sum(1 << rank for rank in ranks)
    packed = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    behind = 256
    buffer = ctypes.create_string_buffer(MARK * (room + behind), room + behind)
    size = loaded.rkm_fold(packed, len(packed), b",", buffer, room)
    return size, buffer.raw[:room].rstrip(MARK).decode("ascii"), buffer.raw[room:]


def as_python_writes(ranks: set[int]) -> str:
    made = RankSet.of(ranks)
    assert made.interval_count <= FEW
    return made.fold_strided()


@SHARED
@given(ranks=few)
def test_any_few_ranks(library: Path, ranks: set[int]) -> None:
    size, text, _ = written(library, ranks, 20_000)
    assert text == as_python_writes(ranks)
    assert size == len(text)


@SHARED
@given(gaps=steps, start=st.integers(0, 130))
def test_equal_steps_wherever_they_begin_and_end(
    library: Path, gaps: list[int], start: int
) -> None:
    ranks = {start}
    for gap in gaps:
        ranks.add(max(ranks) + gap)
    assert written(library, ranks, 20_000)[1] == as_python_writes(ranks)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (set(), ""),
        ({0}, "0"),
        ({63, 64}, "63-64"),
        ({62, 64, 66}, "62-66:2"),
        ({62, 64}, "62,64"),
        ({0, 2, 3}, "0,2-3"),
        ({0, 2, 4, 7, 10}, "0-4:2,7,10"),
        ({0, 3, 5, 7}, "0,3-7:2"),
        (set(range(256)), "0-255"),
        ({*range(0, 128, 2), 129, 130}, "0-126:2,129-130"),
    ],
)
def test_chosen_ranks(library: Path, ranks: set[int], text: str) -> None:
    assert written(library, ranks, 1000)[1] == text
    assert as_python_writes(ranks) == text


@SHARED
@given(ranks=few.filter(bool), room=st.integers(0, 300))
def test_no_more_is_written_than_fits(library: Path, ranks: set[int], room: int) -> None:
    size, text, behind = written(library, ranks, room)
    assert set(behind) == set(MARK)
    whole = as_python_writes(ranks)
    assert (size, text) == (len(whole), whole) or (size == NO_ROOM and whole.startswith(text))
    # Each item has 64 characters: that is said to be enough.
    if room >= 64 * len(whole.split(",")):
        assert size == len(whole)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_set_of_a_large_job(library: Path, share: float) -> None:
    fold = native_fold(library)
    assert fold is not None
    random = Random(7)  # noqa: S311
    ranks = RankSet.of(rank for rank in range(20_000) if random.random() < share)
    assert ranks.interval_count > FEW
    assert fold(ranks, "/") == ranks.fold_strided("/")


def test_the_longest_text_that_a_set_of_so_many_intervals_can_have(library: Path) -> None:
    fold = native_fold(library)
    assert fold is not None
    pairs = RankSet.of(rank for rank in range(90_000, 100_000) if rank % 3)
    assert fold(pairs, "/") == pairs.fold_strided("/") == pairs.fold("/")


@SHARED
@given(ranks=st.sets(st.integers(0, 5000), max_size=FEW))
def test_sets_that_are_kept_as_intervals_are_written_too(library: Path, ranks: set[int]) -> None:
    fold = native_fold(library)
    assert fold is not None
    made = RankSet.of(ranks)
    assert made.packed() == b""
    assert fold(made, "/") == made.fold_strided("/")


@pytest.mark.parametrize("far", [MAX_BITS - 1, MAX_BITS, 1 << 31, 1 << 60])
@pytest.mark.parametrize("count", [3, 50])
def test_a_rank_far_above_the_others(library: Path, count: int, far: int) -> None:
    fold = native_fold(library)
    assert fold is not None
    low = [3 * rank for rank in range(count)]
    assert fold(RankSet.of([*low, far]), "/") == f"0-{low[-1]}:3/{far}"


def test_without_the_library_there_is_none(tmp_path: Path) -> None:
    assert native_fold(tmp_path / "none.so") is None
