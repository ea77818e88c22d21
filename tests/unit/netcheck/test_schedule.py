"""Rounds of pairs: disjoint, complete, bounded, the same for the same seed; any fleet size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.networks.simulated_fleet import SimulatedFleet, SimulatedRun, Ways, run
from relkit.netcheck.measure import schedule
from relkit.netcheck.measure.round_robin import circle_round, rounds_needed
from relkit.netcheck.measure.schedule import crossing_pairs
from relkit.netcheck.model import Link

Plan = Callable[[Sequence[str]], schedule.Schedule]
SIZES = st.integers(min_value=0, max_value=40)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number:03d}" for number in range(count))


def by_switch(count: int, size: int) -> dict[str, str]:
    return {name: f"asw-{at // size}" for at, name in enumerate(names(count))}


def assert_disjoint(pairs: tuple[tuple[str, str], ...]) -> None:
    ends = [end for pair in pairs for end in pair]
    assert len(ends) == len(set(ends))


@given(SIZES)
def test_the_tournament_meets_every_pair_exactly_once(players: int) -> None:
    met = [
        frozenset(pair)
        for number in range(rounds_needed(players))
        for pair in circle_round(players, number)
    ]
    everyone = [frozenset(pair) for pair in itertools.combinations(range(players), 2)]
    assert len(met) == len(everyone)
    assert set(met) == set(everyone)


@given(SIZES, st.integers(min_value=0, max_value=100))
def test_a_round_leaves_out_one_player_at_most(players: int, number: int) -> None:
    ends = [end for pair in circle_round(players, number) for end in pair]
    assert len(ends) == len(set(ends))
    assert players < 2 or len(ends) >= players - 1


@given(SIZES)
def test_full_covers_each_pair_once_and_then_asks_nothing_of_a_quiet_fleet(count: int) -> None:
    fleet = SimulatedFleet(names(count), noise=0.0)
    done = run(fleet, schedule.full(names(count)))
    links = [Link.between(*pair) for pairs in done.rounds for pair in pairs]
    assert len(links) == len(set(links)) == count * (count - 1) // 2
    assert len(done.rounds) == rounds_needed(count)
    assert done.verdict.tested_links == done.verdict.possible_links


@pytest.mark.long
@given(st.integers(min_value=1, max_value=40), st.data())
@settings(max_examples=40, deadline=None)
def test_rounds_are_disjoint_pairs_and_never_more_than_the_bound(
    count: int, data: st.DataObject
) -> None:
    nodes = names(count)
    bad = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=count))
    left = st.sampled_from([0.0, 0.3, 0.8])
    faults = {name: Ways(data.draw(left), data.draw(left)) for name in bad}
    seed = data.draw(st.integers(0, 1000))
    groups = by_switch(count, data.draw(st.integers(1, 8)))
    for plan in (
        schedule.quick(nodes, seed),
        schedule.full(nodes),
        schedule.groups(nodes, groups),
    ):
        done = run(SimulatedFleet(nodes, groups, faults), plan, seed=seed, groups=groups)
        assert len(done.rounds) <= plan.max_rounds
        for pairs in done.rounds:
            assert_disjoint(pairs)
            assert {end for pair in pairs for end in pair} <= set(nodes)


@pytest.mark.parametrize(
    ("count", "bound"), [(0, 0), (1, 0), (2, 3), (3, 12), (4, 12), (5, 5), (64, 8), (1024, 12)]
)
def test_quick_is_bounded_by_two_and_the_doublings_but_for_three_or_four_nodes(
    count: int, bound: int
) -> None:
    assert schedule.quick(names(count)).max_rounds == schedule.most_quick_rounds(count) == bound


@pytest.mark.long
@pytest.mark.parametrize("plan", [schedule.quick, schedule.full])
def test_four_nodes_on_busy_hosts_are_measured_until_the_slow_one_is_known(plan: Plan) -> None:
    """Three in ten measurements are slowed by something that is no fault."""
    nodes = names(4)
    slow = SimulatedFleet(nodes, node_ways={"n002": Ways(0.1, 0.1)}, transient_rate=0.3)
    diagnosed = [names_of(run(slow, plan(nodes), seed=seed)) for seed in range(100)]
    assert sum("n002" in each for each in diagnosed) == 100
    assert sum(bool(each & (set(nodes) - {"n002"})) for each in diagnosed) <= 2
    healthy = SimulatedFleet(nodes, transient_rate=0.3)
    diagnosed = [names_of(run(healthy, plan(nodes), seed=seed)) for seed in range(100)]
    assert sum(bool(each & set(nodes)) for each in diagnosed) <= 2


def test_four_nodes_of_which_one_is_slow_or_dead_take_few_rounds() -> None:
    nodes = names(4)
    for left, rounds in ((1.0, 3), (0.5, 5), (0.0, 3)):
        fleet = SimulatedFleet(nodes, node_ways={"n002": Ways(left, left)}, noise=0.01)
        assert len(run(fleet, schedule.quick(nodes)).rounds) == rounds


def names_of(done: SimulatedRun) -> set[str]:
    """The nodes and links that were diagnosed."""
    return {item.name for item in done.verdict.diagnoses}


def test_quick_stops_after_screening_when_nothing_is_suspect() -> None:
    nodes = names(100)
    done = run(SimulatedFleet(nodes, noise=0.01), schedule.quick(nodes))
    assert [len(pairs) for pairs in done.rounds] == [50, 50]


def test_quick_pairs_suspects_with_healthy_nodes_they_have_not_met() -> None:
    nodes = names(64)
    faults = {"n003": Ways(0.5, 1.0), "n004": Ways(0.0, 0.0), "n005": Ways(0.8, 0.8)}
    for seed in range(20):
        done = run(SimulatedFleet(nodes, node_ways=faults), schedule.quick(nodes, seed), seed=seed)
        first = {Link.between(*pair) for pairs in done.rounds[:2] for pair in pairs}
        for pairs in done.rounds[2:3]:
            for pair in pairs:
                assert len(set(pair) & set(faults)) <= 1
                assert Link.between(*pair) not in first or not set(pair) & set(faults)


def test_the_same_seed_gives_the_same_rounds_and_another_seed_others() -> None:
    nodes = names(32)
    first, again, other = (schedule.quick(nodes, seed).next_round([]) for seed in (7, 7, 8))
    assert first == again
    assert set(first) != set(other)


def test_one_node_alone_has_nothing_to_test() -> None:
    for plan in (
        schedule.quick(["a"]),
        schedule.full(["a"]),
        schedule.groups(["a"], {"a": "asw-1"}),
    ):
        assert plan.next_round([]) == ()


def test_a_node_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        schedule.quick(["a", "b", "a"])


def test_groups_go_inside_the_switch_first_then_across() -> None:
    nodes = names(64)
    topology = by_switch(64, 8)
    done = run(SimulatedFleet(nodes, topology, noise=0.0), schedule.groups(nodes, topology))
    assert len(done.rounds) == 4
    for number, pairs in enumerate(done.rounds):
        assert len(pairs) == 32
        crossing = [topology[one] != topology[other] for one, other in pairs]
        assert all(crossing) if number >= 2 else not any(crossing)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=9), st.integers(0, 5))
def test_crossing_rounds_use_almost_everyone(sizes: list[int], number: int) -> None:
    start = itertools.accumulate([0, *sizes])
    members = [list(range(at, at + size)) for at, size in zip(start, sizes, strict=False)]
    group = {node: at for at, nodes in enumerate(members) for node in nodes}
    pairs = crossing_pairs(members, number)
    ends = [end for pair in pairs for end in pair]
    assert len(ends) == len(set(ends))
    assert all(group[one] != group[other] for one, other in pairs)
    # Nobody is left beside somebody of another group.
    idle = {group[node] for node in group if node not in ends}
    assert len(idle) <= 1


def test_crossing_rounds_spread_each_switch_over_many_others() -> None:
    members = [list(range(at * 32, at * 32 + 32)) for at in range(32)]
    pairs = crossing_pairs(members, 0)
    others = {
        pair[1] // 32 if pair[0] // 32 == 0 else pair[0] // 32
        for pair in pairs
        if 0 in (pair[0] // 32, pair[1] // 32)
    }
    assert len(others) >= 24
