"""What must hold for every fleet: names mean nothing, the healthy stay free, the one is found."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.networks.simulated_fleet import SimulatedFleet, Ways, run
from relkit.netcheck.measure import schedule
from relkit.netcheck.measure.schedule import Schedule
from relkit.netcheck.model import Edge, Link, NetVerdict
from relkit.netcheck.solve.judge import solve

LEFT = st.sampled_from([0.0, 0.2, 0.5])

# Measurements are noisy, so at any noise some draw in many thousands misleads whoever judges it.
# Claims about noisy fleets are therefore made of fixed draws, or as rates over fixed seeds.
NOISY = {"derandomize": True, "deadline": None}


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number:03d}" for number in range(count))


def plans(nodes: tuple[str, ...], seed: int) -> tuple[Schedule, Schedule]:
    return schedule.quick(nodes, seed), schedule.full(nodes)


def comparable(verdict: NetVerdict, rename: dict[str, str]) -> set[tuple[object, ...]]:
    diagnosed: set[tuple[object, ...]] = {
        (one.kind, frozenset(rename[name] for name in one.nodes), one.fault, one.severity)
        for one in verdict.diagnoses
    }
    return diagnosed | {
        ("inconclusive", frozenset(rename[name] for name in group))
        for group, _ in verdict.inconclusive
    }


@given(st.integers(1, 40), st.integers(0, 2**20))
@settings(max_examples=100, **NOISY)  # type: ignore[arg-type]
def test_healthy_fleets_convict_nobody(count: int, seed: int) -> None:
    nodes = names(count)
    for plan in plans(nodes, seed):
        assert run(SimulatedFleet(nodes), plan, seed=seed).verdict.diagnoses == ()


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.02, 0.1])
def test_healthy_fleets_convict_nobody_at_any_noise(noise: float) -> None:
    nodes = names(96)
    topology = {name: f"asw-{at // 12}" for at, name in enumerate(nodes)}
    for seed in range(10):
        fleet = SimulatedFleet(nodes, topology, noise=noise, lognormal=seed % 2 == 1)
        for plan in (*plans(nodes[:24], seed), schedule.groups(nodes, topology)):
            part = replace(fleet, nodes=nodes if plan.max_rounds < 24 else nodes[:24])
            assert run(part, plan, seed=seed, groups=topology).verdict.diagnoses == ()


WAYS = ("both", "out", "into")


def one_bad(count: int, seed: int, left: float, way: str) -> list[bool]:
    """Whether each plan convicts exactly the one bad node of a fleet."""
    nodes = names(count)
    bad = nodes[seed % count]
    ways = {"both": Ways(left, left), "out": Ways(left, 1.0), "into": Ways(1.0, left)}[way]
    fleet = SimulatedFleet(nodes, node_ways={bad: ways}, noise=0.05 if count > 8 else 0.02)
    verdicts = [run(fleet, plan, seed=seed).verdict for plan in plans(nodes, seed)]
    return [[(c.kind, c.nodes) for c in v.diagnoses] == [("node", (bad,))] for v in verdicts]


@pytest.mark.long
@given(st.integers(3, 40), st.integers(0, 2**20), LEFT, st.sampled_from(WAYS))
@settings(max_examples=120, **NOISY)  # type: ignore[arg-type]
def test_one_bad_node_is_diagnosed_and_no_other(
    count: int, seed: int, left: float, way: str
) -> None:
    assert all(one_bad(count, seed, left, way))


@pytest.mark.long
def test_a_loss_of_a_fifth_is_found_in_nearly_every_fleet() -> None:
    # The weakest fault of networks/netcheck_sim.py, whose bar of 99.5 % is over all its faults.
    rng = random.Random(1)  # noqa: S311  the same draws in every run
    found = [
        ok
        for seed in range(200)
        for ok in one_bad(rng.randint(9, 40), seed, 0.79, rng.choice(WAYS))
    ]
    assert sum(found) >= 0.99 * len(found)


@pytest.mark.long
@given(st.integers(2, 20), st.integers(0, 2**20), st.data())
@settings(max_examples=60, deadline=None)
def test_renaming_nodes_renames_the_verdict(count: int, seed: int, data: st.DataObject) -> None:
    nodes = names(count)
    bad = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=3))
    fleet = SimulatedFleet(nodes, node_ways={name: Ways(0.5, 0.5) for name in bad})
    done = run(fleet, schedule.quick(nodes, seed), seed=seed)
    shuffled = list(nodes)
    random.Random(seed).shuffle(shuffled)  # noqa: S311  (names, not secrets)
    rename = dict(zip(nodes, (f"other-{name}" for name in shuffled), strict=True))
    edges = [
        replace(edge, source=rename[edge.source], target=rename[edge.target]) for edge in done.edges
    ]
    random.Random(seed + 1).shuffle(edges)  # noqa: S311
    verdict = solve(edges, sorted(rename.values()))
    same = {name: name for name in rename.values()}
    assert comparable(done.verdict, rename) == comparable(verdict, same)


@given(
    st.lists(
        st.builds(
            Edge,
            source=st.sampled_from("abcde"),
            target=st.sampled_from("abcde"),
            round=st.integers(0, 5),
            bandwidth_gbps=st.floats(0, 1e4, allow_nan=False),
            latency_p50_us=st.floats(0, 1e6, allow_nan=False),
            accused=st.sampled_from(["", "a", "zzz"]),
        ),
        max_size=60,
    ),
    st.dictionaries(st.sampled_from("abcdez"), st.sampled_from(["s", "t"])),
)
@example(
    [
        Edge("a", "b", round=0, bandwidth_gbps=0.0, latency_p50_us=0.0),
        Edge("a", "b", round=1, bandwidth_gbps=2.225073858507e-311, latency_p50_us=0.0),
        Edge("a", "c", round=0, bandwidth_gbps=1.0, latency_p50_us=0.0),
        Edge("b", "a", round=0, bandwidth_gbps=0.0, latency_p50_us=0.0, accused="a"),
    ],
    {},
)
@settings(max_examples=150, deadline=None)
def test_any_edges_give_a_sound_verdict(edges: list[Edge], groups: dict[str, str]) -> None:
    verdict = solve(edges, "abcde", groups=groups)
    assert verdict.tested_links <= verdict.possible_links == 10
    for one in verdict.diagnoses:
        assert 0.0 <= one.severity <= 1.0
        assert 0.0 < one.confidence < 1.0
        assert set(one.nodes) <= set("abcde")
        assert one.reasons


@pytest.mark.long
@pytest.mark.parametrize("mode", ["quick", "groups", "full"])
def test_a_few_sets_of_the_benchmark_are_all_right(mode: str) -> None:
    rng = random.Random(mode)  # noqa: S311
    nodes = names(64 if mode == "full" else 256)
    topology = {name: f"asw-{at // 16:02d}" for at, name in enumerate(nodes)}
    for seed in range(4):
        bad = {name: Ways(0.75, 0.75) for name in rng.sample(nodes, rng.randint(1, 4))}
        fine = [name for name in nodes if name not in bad]
        fleet = SimulatedFleet(nodes, node_ways=bad)
        expected: set[tuple[str, tuple[str, ...]]] = {("node", (name,)) for name in bad}
        plan = schedule.quick(nodes, seed)
        if mode == "groups":
            uplink = rng.choice(sorted(set(topology.values())))
            fleet = replace(fleet, groups=topology, group_ways={uplink: Ways(0.7, 0.7)})
            members = tuple(name for name in nodes if topology[name] == uplink)
            expected.add(("group", members))
            plan = schedule.groups(nodes, topology)
        if mode == "full":
            link = Link.between(*rng.sample(fine, 2))
            fleet = replace(fleet, link_ways={link: Ways(1.0, 0.6)})
            expected.add(("link", (link.low, link.high)))
            plan = schedule.full(nodes)
        verdict = run(fleet, plan, seed=seed, groups=fleet.groups).verdict
        assert {(one.kind, one.nodes) for one in verdict.diagnoses} == expected
