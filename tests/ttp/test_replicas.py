"""Replica maps: every shard on several ranks, on several hosts where that can be."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import UsageProblem
from relkit.ttp.replicas import bytes_per_parameter, replica_map


def survives(holders: tuple[tuple[int, ...], ...], dead: set[int]) -> bool:
    return all(set(held_by) - dead for held_by in holders)


@given(st.integers(2, 24), st.integers(2, 4), st.data())
def test_every_shard_has_its_reducer_first_and_distinct_holders(
    size: int, copies: int, data: st.DataObject
) -> None:
    copies = min(copies, size)
    ranks = data.draw(st.lists(st.integers(0, 999), min_size=size, max_size=size, unique=True))
    names = data.draw(st.lists(st.sampled_from("abcd"), min_size=size, max_size=size))
    found = replica_map("g", ranks, copies=copies, hosts=dict(zip(ranks, names, strict=True)))
    assert tuple(held_by[0] for held_by in found.holders) == tuple(ranks)
    assert all(len(set(held_by)) == copies for held_by in found.holders)
    # Memory is even: each rank holds as many shards as there are copies.
    assert {len(found.shards_of(rank)) for rank in ranks} == {copies}
    for rank in ranks:
        assert survives(found.holders, {rank})


@given(st.integers(1, 12), st.data())
def test_two_copies_are_on_two_hosts_whenever_no_host_has_more_than_half(
    pairs: int, data: st.DataObject
) -> None:
    size = 2 * pairs
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=size, max_size=size))
    hosts = dict(enumerate(names))
    found = replica_map("g", range(size), hosts=hosts)
    if max(names.count(name) for name in names) <= pairs:
        assert found.unprotected(hosts) == ()
    else:
        assert found.unprotected(hosts)


@given(st.integers(1, 8), st.data())
def test_a_chain_has_no_neighbours_on_one_host_where_that_can_be(
    half: int, data: st.DataObject
) -> None:
    size = 2 * half + 1
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=size, max_size=size))
    hosts = dict(enumerate(names))
    if max(names.count(name) for name in names) <= half:
        assert replica_map("g", range(size), hosts=hosts).unprotected(hosts) == ()


def test_one_host_mirrors_over_half_the_group() -> None:
    found = replica_map("tp0 pp0", (0, 2, 4, 6))
    assert found.holders == ((0, 4), (2, 6), (4, 0), (6, 2))
    assert found.unprotected({}) == ()
    assert found.unprotected(dict.fromkeys(range(8), "one")) == (0, 1, 2, 3)


def test_three_ranks_are_chained() -> None:
    assert replica_map("g", (0, 1, 2)).holders == ((0, 1), (1, 2), (2, 0))


def test_share_of_double_deaths_survived_is_the_published_one() -> None:
    mirrored = replica_map("g", range(8)).holders
    dead = [set(pair) for pair in combinations(range(8), 2)]
    assert sum(survives(mirrored, two) for two in dead) / len(dead) == pytest.approx(6 / 7)
    chained = replica_map("g", range(7)).holders
    dead = [set(pair) for pair in combinations(range(7), 2)]
    assert sum(survives(chained, two) for two in dead) / len(dead) == pytest.approx(14 / 21)


@pytest.mark.parametrize("copies", [0, 2])
def test_a_group_of_one_cannot_be_copied(copies: int) -> None:
    with pytest.raises(UsageProblem, match="1 data-parallel rank,"):
        replica_map("g", (5,), copies=copies)


def test_memory_is_as_the_formula_says() -> None:
    assert bytes_per_parameter(8, 2) == 10
    assert bytes_per_parameter(8, 1) == 9
    assert bytes_per_parameter(8, 1, distributed=False) == 16
