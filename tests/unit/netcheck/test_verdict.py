"""Verdicts: each kind of fault by its own name, and open questions where edges cannot tell."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from benchmarks.networks.simulated_fleet import SimulatedFleet, Ways, run
from relkit.netcheck.measure import schedule
from relkit.netcheck.model import Edge, Failure, Link, NetVerdict, Thresholds
from relkit.netcheck.solve.judge import solve

SIX = tuple("abcdef")
SWITCHES = {"a": "asw-1", "b": "asw-1", "c": "asw-2", "d": "asw-2", "e": "asw-3", "f": "asw-3"}


def named(verdict: NetVerdict) -> dict[str, str]:
    return {one.name: one.fault for one in verdict.diagnoses}


def all_pairs(
    nodes: Sequence[str] = SIX,
    slow: Mapping[tuple[str, str], float] | None = None,
    gbps: float = 10.0,
    rounds: int = 1,
) -> list[Edge]:
    """Both directions of every pair, without noise; `slow` gives shares for some directions."""
    return [
        Edge(one, other, number, bandwidth_gbps=gbps * (slow or {}).get((one, other), 1.0))
        for number in range(rounds)
        for one, other in itertools.permutations(nodes, 2)
    ]


@pytest.mark.parametrize("noise", [0.002, 0.05])
@pytest.mark.parametrize(
    ("nodes", "links", "expected"),
    [
        ({}, {}, {}),
        ({"b": Ways(0.5, 0.5)}, {}, {"b": "slow"}),
        ({"b": Ways(0.0, 0.0)}, {}, {"b": "dead"}),
        ({"b": Ways(0.5, 1.0)}, {}, {"b": "slow out"}),
        ({"b": Ways(1.0, 0.5)}, {}, {"b": "slow in"}),
        ({}, {Link("b", "e"): Ways(0.4, 0.4)}, {"b - e": "slow"}),
        ({}, {Link("b", "e"): Ways(0.0, 0.0)}, {"b - e": "dead"}),
        ({"b": Ways(0.5, 0.5), "e": Ways(0.0, 0.0)}, {}, {"b": "slow", "e": "dead"}),
        ({"b": Ways(0.5, 0.5)}, {Link("c", "f"): Ways(0.3, 0.3)}, {"b": "slow", "c - f": "slow"}),
        ({"b": Ways(0.3, 0.7)}, {}, {"b": "slow out"}),
    ],
)
def test_full_mode_names_the_fault(
    nodes: dict[str, Ways], links: dict[Link, Ways], expected: dict[str, str], noise: float
) -> None:
    for seed in range(5):
        fleet = SimulatedFleet(SIX, {}, nodes, links, noise=noise)
        done = run(fleet, schedule.full(SIX), seed=seed)
        assert named(done.verdict) == expected
        assert not done.verdict.inconclusive
        assert done.verdict.rounds == len(done.rounds)


@pytest.mark.parametrize(
    ("nodes", "uplinks", "expected"),
    [
        ({}, {}, {}),
        ({}, {"asw-2": Ways(0.5, 0.5)}, {"switch asw-2": "slow uplink"}),
        ({}, {"asw-2": Ways(0.0, 0.0)}, {"switch asw-2": "dead"}),
        ({}, {"asw-2": Ways(0.5, 1.0)}, {"switch asw-2": "slow uplink"}),
        ({"c": Ways(0.5, 0.5)}, {}, {"c": "slow"}),
        (
            {"a": Ways(0.6, 0.6)},
            {"asw-2": Ways(0.4, 0.4)},
            {"a": "slow", "switch asw-2": "slow uplink"},
        ),
    ],
)
def test_groups_mode_tells_node_and_uplink_apart(
    nodes: dict[str, Ways], uplinks: dict[str, Ways], expected: dict[str, str]
) -> None:
    fleet = SimulatedFleet(SIX, SWITCHES, nodes, {}, uplinks, noise=0.01)
    done = run(fleet, schedule.groups(SIX, SWITCHES), groups=SWITCHES)
    assert named(done.verdict) == expected
    for one in done.verdict.diagnoses:
        if one.kind == "group":
            assert one.nodes == ("c", "d")


def test_two_switches_leave_a_slow_uplink_open() -> None:
    four = {name: SWITCHES[name] for name in "abcd"}
    fleet = SimulatedFleet(tuple(four), four, group_ways={"asw-1": Ways(0.5, 0.5)}, noise=0.01)
    verdict = run(fleet, schedule.groups(tuple(four), four), groups=four).verdict
    assert not verdict.diagnoses
    ((nodes, sentence),) = verdict.inconclusive
    assert nodes == ("a", "b", "c", "d")
    assert "switch asw-1" in sentence
    assert "switch asw-2" in sentence


def test_an_oversubscribed_network_convicts_no_uplink() -> None:
    slow = {
        pair: 0.5
        for pair in itertools.permutations(SIX, 2)
        if SWITCHES[pair[0]] != SWITCHES[pair[1]]
    }
    verdict = solve(all_pairs(slow=slow, rounds=2), SIX, groups=SWITCHES)
    assert not verdict.diagnoses
    assert any("oversubscribed" in sentence for _, sentence in verdict.inconclusive)


@pytest.mark.parametrize("ways", [Ways(0.0, 0.0), Ways(0.4, 1.0)])
def test_two_nodes_cannot_be_told_apart_and_it_says_so(ways: Ways) -> None:
    fleet = SimulatedFleet(("a", "b"), node_ways={"a": ways}, noise=0.01)
    for plan in (schedule.quick(fleet.nodes), schedule.full(fleet.nodes)):
        verdict = run(fleet, plan).verdict
        assert not verdict.diagnoses
        ((nodes, sentence),) = verdict.inconclusive
        assert nodes == ("a", "b")
        assert "node a" in sentence
        assert "node b" in sentence
        assert "link a - b" in sentence


@pytest.mark.parametrize("ways", [Ways(0.0, 0.0), Ways(0.5, 0.5), Ways(0.5, 1.0)])
def test_three_nodes_are_enough_to_convict_one(ways: Ways) -> None:
    fleet = SimulatedFleet(("a", "b", "c"), node_ways={"c": ways})
    for seed in range(10):
        for plan in (schedule.quick(fleet.nodes, seed), schedule.full(fleet.nodes)):
            verdict = run(fleet, plan, seed=seed).verdict
            assert [one.name for one in verdict.diagnoses] == ["c"]


def test_one_node_alone_is_neither_convicted_nor_covered() -> None:
    verdict = solve([], ["a"])
    assert verdict == NetVerdict()


def test_nodes_that_nothing_measured_are_told() -> None:
    verdict = solve([], ["a", "b"])
    assert not verdict.diagnoses
    ((nodes, sentence),) = verdict.inconclusive
    assert nodes == ("a", "b")
    assert "Not known to be healthy" in sentence
    assert (verdict.tested_links, verdict.possible_links) == (0, 1)


def test_an_agent_that_never_answered_is_convicted_and_its_partner_is_not() -> None:
    edges = [
        Edge(one, other, 0, failure=Failure.NO_AGENT, accused="b")
        for one, other in (("a", "b"), ("b", "a"))
    ]
    edges += [
        Edge(one, other, 1, bandwidth_gbps=10.0) for one, other in itertools.permutations("acd", 2)
    ]
    edges += [Edge("c", "b", 1, failure=Failure.NO_AGENT, accused="b")]
    verdict = solve(edges, "abcd")
    assert named(verdict) == {"b": "dead"}
    assert "did not answer" in verdict.diagnoses[0].reasons[0]
    assert verdict.tested_links == 3
    assert verdict.possible_links == 6


def test_a_bound_convicts_what_the_fleet_would_allow() -> None:
    slow = {pair: 0.93 for pair in itertools.permutations(SIX, 2) if "b" in pair}
    assert not solve(all_pairs(slow=slow, rounds=2), SIX).diagnoses
    verdict = solve(all_pairs(slow=slow, rounds=2), SIX, Thresholds(min_bandwidth_gbps=9.5))
    assert named(verdict) == {"b": "slow"}


def test_latency_above_the_ceiling_counts_as_slow() -> None:
    edges = [
        Edge(
            one,
            other,
            0,
            bandwidth_gbps=10.0,
            latency_p50_us=900.0 if "b" in (one, other) else 30.0,
        )
        for one, other in itertools.permutations(SIX, 2)
    ]
    assert not solve(edges, SIX).diagnoses
    assert named(solve(edges, SIX, Thresholds(max_latency_us=100.0))) == {"b": "slow"}


def test_a_bound_that_everyone_breaks_convicts_nobody() -> None:
    verdict = solve(all_pairs(), SIX, Thresholds(min_bandwidth_gbps=50.0))
    assert not verdict.diagnoses
    ((nodes, sentence),) = verdict.inconclusive
    assert nodes == SIX
    assert "whole network is slow" in sentence


def test_a_baseline_excuses_what_was_always_slow_and_shows_what_became_slow() -> None:
    slow = {pair: 0.5 for pair in itertools.permutations(SIX, 2) if "b" in pair}
    edges = all_pairs(slow=slow, rounds=2)
    earlier = {edge.link: edge.bandwidth_gbps for edge in edges}
    assert not solve(edges, SIX, Thresholds(baseline=earlier)).diagnoses
    even = {edge.link: 10.0 for edge in edges}
    assert named(solve(edges, SIX, Thresholds(baseline=even))) == {"b": "slow"}


def test_one_transient_slow_pair_is_told_and_names_nobody() -> None:
    edges = all_pairs(slow={("b", "e"): 0.3})
    verdict = solve(edges, SIX)
    assert not verdict.diagnoses
    ((nodes, sentence),) = verdict.inconclusive
    assert nodes == ("b", "e")
    assert "one measurement" in sentence


def test_the_largest_message_of_a_round_is_the_one_that_counts() -> None:
    small = [
        Edge(one, other, 0, size_bytes=64, bandwidth_gbps=0.01)
        for one, other in itertools.permutations(SIX, 2)
    ]
    large = [
        Edge(one, other, 0, size_bytes=1 << 20, bandwidth_gbps=4.0 if "c" in (one, other) else 10.0)
        for one, other in itertools.permutations(SIX, 2)
    ]
    assert named(solve(small + large, SIX)) == {"c": "slow"}


def test_edges_of_unknown_nodes_and_odd_values_are_ignored() -> None:
    odd = [
        Edge("a", "nobody", 0, bandwidth_gbps=1.0),
        Edge("a", "a", 0, bandwidth_gbps=1.0),
    ]
    assert solve(all_pairs() + odd, SIX) == solve(all_pairs(), SIX)
    broken = [Edge("a", "b", 1, bandwidth_gbps=float("nan"))]
    assert not solve(all_pairs() + broken, SIX).diagnoses


def test_severity_and_confidence_are_shares() -> None:
    fleet = SimulatedFleet(SIX, node_ways={"d": Ways(0.6, 0.6)}, noise=0.03)
    (one,) = run(fleet, schedule.full(SIX)).verdict.diagnoses
    assert one.severity == pytest.approx(0.4, abs=0.03)
    assert 0.99 < one.confidence < 1.0
    assert one.reasons


def test_a_node_behind_partners_at_fault_is_not_called_healthy() -> None:
    edges = [Edge(*pair, 0, failure=Failure.NO_ANSWER) for pair in (("a", "b"), ("b", "a"))]
    edges += [Edge(*pair, 1, failure=Failure.NO_ANSWER) for pair in (("c", "b"), ("b", "c"))]
    edges += [
        Edge(one, other, 2, bandwidth_gbps=10.0) for one, other in itertools.permutations("cdef", 2)
    ]
    verdict = solve(edges, SIX)
    assert named(verdict) == {"b": "dead"}
    assert verdict.inconclusive[0][0] == ("a",)
