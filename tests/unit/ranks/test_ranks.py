"""RankSet against Python's own sets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet

rank_lists = st.lists(st.integers(0, 60))


@given(rank_lists, rank_lists)
def test_set_algebra_equals_python_sets(left: list[int], right: list[int]) -> None:
    a, b = RankSet.of(left), RankSet.of(right)
    assert set(a | b) == set(left) | set(right)
    assert set(a - b) == set(left) - set(right)
    assert set(a & b) == set(left) & set(right)
    assert len(a) == len(set(left))
    assert all((rank in a) == (rank in left) for rank in range(61))


@given(st.integers(0, 60), st.integers(0, 20), rank_lists)
def test_what_is_taken_from_a_run_of_ranks_leaves_the_rest(
    low: int, more: int, cuts: list[int]
) -> None:
    run = RankSet.from_intervals([(low, low + more)])
    left = run - RankSet.of(cuts)
    assert left == RankSet.of(set(run) - set(cuts))
    assert len(left) == len(set(run) - set(cuts))
    assert len(left) == len(list(left)), "the same when it is asked a second time"


@given(rank_lists)
def test_intervals_are_sorted_disjoint_and_not_adjacent(ranks: list[int]) -> None:
    intervals = RankSet.of(ranks).intervals
    assert all(low <= high for low, high in intervals)
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(intervals))


def test_fold_writes_runs_as_the_guide_does() -> None:
    ranks = RankSet.of([1, 2, 3, 9, 11, 12, 13, 14, 15])
    assert ranks.fold() == "1-3,9,11-15"
    assert ranks.fold("/") == "1-3/9/11-15"
    assert RankSet().fold() == ""


@given(st.lists(st.integers(0, 300)))
def test_what_was_folded_is_unfolded(ranks: list[int]) -> None:
    made = RankSet.of(ranks)
    assert RankSet.unfold(made.fold()) == made


@pytest.mark.parametrize("folded", ["x", "3-1", "-1", "1-2-3"])
def test_what_was_never_folded_is_refused(folded: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        RankSet.unfold(folded)


def test_overlapping_intervals_are_joined() -> None:
    assert RankSet.from_intervals([(4, 9), (0, 5)]) == RankSet.world(10)


def test_a_negative_or_backward_interval_is_refused() -> None:
    for bad in [(3, 2), (-1, 4)]:
        with pytest.raises(ValueError, match="bad rank interval"):
            RankSet.from_intervals([bad])
