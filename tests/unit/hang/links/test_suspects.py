"""Whose links are measured after a hang."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.hang.links.model import MAX_NODES
from relkit.hang.links.suspects import suspects_of, with_unheard_nodes
from relkit.hang.model import Category, Culprit, HangVerdict
from relkit.hang.waits import Wait
from relkit.ranks import RankSet


def verdict(*ranks: int) -> HangVerdict:
    culprits = (Culprit(rank, "h", 1, Category.BLOCKED, "sleeps", (), 0.9) for rank in ranks)
    return HangVerdict(tuple(culprits), ())


def wait(waiters: list[int], missing: list[int]) -> Wait:
    return Wait("all_reduce #5", RankSet.of(waiters), RankSet.of(missing), True)


def test_the_suspects_node_and_those_that_wait_for_it() -> None:
    node_of = {rank: rank // 2 for rank in range(8)}
    waits = [wait([0, 2], [5]), wait([6, 7], [0])]
    suspects = suspects_of(verdict(5), waits, node_of)
    # Nodes 3's ranks wait for rank 0, which is nobody's suspect.
    assert suspects.ranks == {2: RankSet.of([5]), 0: RankSet.of([0]), 1: RankSet.of([2])}
    assert list(suspects.ranks) == [2, 0, 1]
    assert suspects.left_out == ()


def test_without_a_culprit_all_that_wait_are_looked_at() -> None:
    suspects = suspects_of(verdict(), [wait([0, 1, 2], [])], {0: 0, 1: 1, 2: 2})
    assert set(suspects.ranks) == {0, 1, 2}


def test_ranks_of_which_no_node_is_known_are_left_alone() -> None:
    assert suspects_of(verdict(9), [wait([8], [9])], {0: 0}).ranks == {}


def test_with_many_suspects_some_that_wait_for_them_are_measured_too() -> None:
    node_of = {rank: rank for rank in range(20)}
    suspects = suspects_of(verdict(*range(10)), [wait(list(range(10, 20)), [0])], node_of)
    assert list(suspects.ranks) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert suspects.left_out == (*range(4, 10), *range(14, 20))


@given(
    st.lists(st.integers(0, 40), unique=True, max_size=12),
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 40), max_size=10), st.lists(st.integers(0, 40), max_size=3)
        ),
        max_size=5,
    ),
    st.integers(1, 8),
)
def test_they_are_bounded_and_only_those_concerned(
    culprits: list[int], waits: list[tuple[list[int], list[int]]], ranks_a_node: int
) -> None:
    node_of = {rank: rank // ranks_a_node for rank in range(41)}
    suspects = suspects_of(verdict(*culprits), [wait(*each) for each in waits], node_of)
    assert len(suspects.ranks) <= MAX_NODES
    concerned = {*culprits, *(rank for waiters, _ in waits for rank in waiters)}
    chosen = {rank for ranks in suspects.ranks.values() for rank in ranks}
    assert chosen <= concerned
    assert all(ranks and {node_of[r] for r in ranks} == {n} for n, ranks in suspects.ranks.items())
    assert not set(suspects.left_out) & set(suspects.ranks)
    if suspects.left_out:
        assert len(suspects.ranks) == MAX_NODES
    if culprits:
        assert next(iter(suspects.ranks)) == node_of[culprits[0]]


@pytest.mark.parametrize(
    ("known", "nodes", "world_size", "more"),
    [
        ({0: 0, 1: 0, 4: 2, 5: 2}, 4, 8, {2: 1, 3: 1, 6: 3, 7: 3}),
        ({0: 0}, 3, 3, {1: 1, 2: 2}),
        ({}, 2, 4, {0: 0, 1: 0, 2: 1, 3: 1}),
        ({2: 1, 3: 1}, 2, 4, {0: 0, 1: 0}),
        # Two nodes with three ranks: nobody can know who has two of them.
        ({0: 0}, 3, 4, {}),
        ({0: 0, 1: 0, 5: 2}, 3, 6, {2: 1, 3: 1, 4: 1}),
        ({0: 0, 1: 1}, 2, 2, {}),
        # A rank that ended before anybody heard of it, on a node that was heard.
        ({0: 0, 2: 1}, 2, 3, {}),
    ],
)
def test_ranks_that_nobody_has_heard_of_are_on_the_nodes_that_sent_nothing(
    known: dict[int, int], nodes: int, world_size: int, more: dict[int, int]
) -> None:
    assert with_unheard_nodes(known, nodes, world_size) == known | more
