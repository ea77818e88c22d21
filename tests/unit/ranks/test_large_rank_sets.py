"""Rank sets of many intervals, which are kept as bits, against Python's own sets."""

from __future__ import annotations

import sys
from itertools import accumulate
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit import ranks as ranks_module
from relkit.ranks import FEW, RankSet

SIZE = 3000


def drawn(seed: int, share: float) -> set[int]:
    """Ranks of a large job, each there by chance."""
    random = Random(seed)  # noqa: S311
    return {rank for rank in range(SIZE) if random.random() < share}


large = st.builds(drawn, st.integers(0, 1 << 30), st.floats(0.2, 0.8))
small = st.sets(st.integers(0, SIZE + 500), max_size=20)
either = st.one_of(large, small)
some = st.sets(st.integers(0, 300), min_size=1)
steps = st.lists(st.integers(1, 4), min_size=1, max_size=80)


@given(either, either)
def test_set_algebra_equals_python_sets(left: set[int], right: set[int]) -> None:
    a, b = RankSet.of(left), RankSet.of(right)
    assert set(a | b) == left | right
    assert set(a - b) == left - right
    assert set(a & b) == left & right
    assert set(RankSet.union([a, b, a])) == left | right
    assert len(a) == len(left)
    assert bool(a - a) is False


@given(large, large)
def test_the_same_ranks_are_equal_however_they_were_made(left: set[int], right: set[int]) -> None:
    whole, part = RankSet.of(left | right), RankSet.of(right)
    for made in (
        RankSet.of(left) | part,
        RankSet(whole.intervals),
        RankSet.from_bits(whole.bits()),
    ):
        assert made == whole
        assert hash(made) == hash(whole)
    few = RankSet.of(sorted(left)[:9])
    assert whole - (whole - few) == few
    assert hash(whole - (whole - few)) == hash(few)
    assert whole != few


def test_only_a_large_set_has_packed_bits() -> None:
    ranks = RankSet.of(range(7, 3000, 3))
    packed = ranks.packed()
    assert {
        8 * at + bit for at, byte in enumerate(packed) for bit in range(8) if byte >> bit & 1
    } == set(ranks)
    assert len(packed) == 3000 // 8
    assert RankSet.of([1, 3000]).packed() == b""


@given(large, st.integers(-2, SIZE + 2))
def test_membership(ranks: set[int], rank: int) -> None:
    made = RankSet.of(ranks)
    assert (rank in made) == (rank in ranks)
    assert "0" not in made


@given(either)
def test_intervals_and_text_are_exact(ranks: set[int]) -> None:
    made = RankSet.of(ranks)
    assert RankSet.unfold(made.fold()) == made
    assert made.fold("/").replace("/", ",") == made.fold()
    assert made.interval_count == len(made.intervals)
    assert {r for low, high in made.intervals for r in range(low, high + 1)} == ranks
    for count in (0, 1, 3, 10_000):
        assert made.first_intervals(count) == made.intervals[:count]
    if made.interval_count > 4:
        first, last = RankSet(made.intervals[:3]), RankSet(made.intervals[-1:])
        assert made.fold_briefly() == f"{first.fold()},…,{last.fold()} ({len(ranks)} ranks)"


@given(some)
def test_bits_give_the_intervals_and_the_text_that_few_intervals_give(ranks: set[int]) -> None:
    made = RankSet.of(ranks)
    with patch.object(ranks_module, "FEW", 0):
        as_bits = RankSet(made.intervals)
        lows, highs = zip(*made.intervals, strict=True)
        assert RankSet.from_ends(lows[::-1], highs[::-1]) == as_bits
        assert as_bits != made, "it is kept in the other form"
        assert as_bits.intervals == made.intervals
        assert as_bits.interval_count == made.interval_count
        assert as_bits.fold("/") == made.fold("/")
        assert len(as_bits) == len(ranks)


@given(either)
def test_bits_are_read_without_numpy(ranks: set[int]) -> None:
    made = RankSet.of(ranks)
    bits, intervals = made.bits(), made.intervals
    with patch.dict(sys.modules, {"numpy": None}):
        assert ranks_module._few(bits) == intervals


@given(either)
def test_a_count_is_made_once_and_stays_right(ranks: set[int]) -> None:
    made = RankSet.of(ranks)
    assert [len(made), len(made), len(made | RankSet.of([9000]))] == [
        len(ranks),
        len(ranks),
        len(ranks) + 1,
    ]


@given(st.lists(st.integers(0, 4000), min_size=FEW + 1, max_size=400, unique=True))
def test_bits_are_the_same_with_and_without_numpy(ranks: list[int]) -> None:
    ends = [rank + rank % 3 for rank in ranks]
    made = []
    for quick in (0, 1 << 30):
        with patch.object(ranks_module, "_QUICK", quick):
            made.append(RankSet.from_ends(ranks, ends))
            with pytest.raises(ValueError, match="bad rank interval"):
                RankSet.from_ends([*ranks, 9], [*ends, 8])
    assert made[0] == made[1]


@given(steps)
def test_bits_say_equal_steps_as_few_intervals_do(gaps: list[int]) -> None:
    made = RankSet.of(accumulate(gaps))
    with patch.object(ranks_module, "FEW", 0):
        as_bits = RankSet(made.intervals)
        assert as_bits.fold_strided("/") == made.fold_strided("/")


def test_every_second_rank_of_many_is_one_term() -> None:
    assert RankSet.of(range(0, 100_000, 2)).fold_strided() == "0-99998:2"


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 2)), min_size=FEW + 1, max_size=400))
def test_ends_in_any_order_may_overlap(spans: list[tuple[int, int]]) -> None:
    lows = [low for low, _ in spans]
    highs = [low + more for low, more in spans]
    assert RankSet.from_ends(lows, highs) == RankSet.from_intervals(zip(lows, highs, strict=True))


def test_ranks_that_only_a_hostile_file_has_cost_no_bits() -> None:
    high = 1 << 60
    sparse = RankSet.of(range(high, high + 2000, 2))
    dense = RankSet.of(range(0, 2000, 2))
    assert len(sparse | dense) == 2000
    assert sparse - dense == sparse
    assert dense - sparse == dense
    assert (sparse | dense) - sparse == dense
    assert RankSet.union([sparse, dense]) == sparse | dense
    assert (RankSet.world(high) - dense).intervals[:2] == ((1, 1), (3, 3))
    assert (dense - RankSet.world(high)) == RankSet()
    assert RankSet.from_ends(*zip(*sparse.intervals, strict=True)) == sparse


@pytest.mark.parametrize("bad", [([-1] * 300, [4] * 300), ([5] * 300, [4] * 300)])
def test_backward_and_negative_ends_are_refused(bad: tuple[list[int], list[int]]) -> None:
    with pytest.raises(ValueError, match="bad rank interval"):
        RankSet.from_ends(*bad)
