"""Uplinks that are narrow for many pairs only: found by loading them, and no node is named."""

from __future__ import annotations

import random

import pytest

from benchmarks.networks.simulated_fleet import SimulatedFleet, SimulatedRun, Ways, run
from relkit.findings import Status
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure.load_rounds import most_load_rounds
from relkit.netcheck.measure.loaded_schedule import by_switch
from relkit.netcheck.model import NodeFacts, Thresholds
from relkit.netcheck.report.report import net_report
from relkit.netcheck.solve.judge import judge


def fleet_of(switches: int, size: int, **faults: object) -> SimulatedFleet:
    nodes = tuple(f"n{at}" for at in range(switches * size))
    groups = {node: f"asw-{at // size}" for at, node in enumerate(nodes)}
    return SimulatedFleet(nodes, groups, **faults)  # type: ignore[arg-type]


def check(fleet: SimulatedFleet, seed: int = 0) -> SimulatedRun:
    return run(fleet, by_switch(fleet.nodes, fleet.groups), seed=seed, groups=fleet.groups)


def narrow(done: SimulatedRun) -> set[str]:
    assert done.verdict.load is not None
    return {item.switch for item in done.verdict.load.narrow}


@pytest.mark.parametrize("seed", range(12))
def test_narrow_uplinks_are_found_with_slow_nodes_beside_them_and_nobody_else(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (faults, not secrets)
    switches, size = chance.choice([3, 4, 6, 9]), chance.choice([3, 4, 6])
    faulty = chance.sample(range(switches), chance.randint(1, max(1, switches // 3)))
    width = {f"asw-{at}": chance.uniform(1.0, 0.65 * size) for at in faulty}
    slow = {f"n{chance.randrange(switches * size)}": Ways(0.5, 0.5)} if seed % 2 else {}
    done = check(fleet_of(switches, size, uplink_pairs=width, node_ways=slow), seed)
    assert narrow(done) == set(width)
    load = done.verdict.load
    assert load is not None
    assert all(item.is_only_together for item in load.narrow)
    assert {item.name for item in done.verdict.diagnoses} == set(slow)
    assert not done.verdict.inconclusive
    assert load.rounds <= most_load_rounds(switches, len(faulty))


def test_a_healthy_fleet_is_loaded_once_and_nothing_is_said() -> None:
    done = check(fleet_of(4, 4))
    assert done.verdict.load is not None
    assert (done.verdict.load.rounds, done.verdict.load.share > 0.9) == (1, True)
    assert not narrow(done)
    assert not done.verdict.diagnoses


def test_a_network_that_is_narrow_by_design_accuses_only_who_is_narrower() -> None:
    width = {f"asw-{at}": 2.0 for at in range(6)} | {"asw-3": 1.0}
    done = check(fleet_of(6, 4, uplink_pairs=width))
    assert narrow(done) == {"asw-3"}
    assert done.verdict.load is not None
    assert done.verdict.load.share == pytest.approx(0.5, abs=0.1)


def test_an_uplink_that_slows_a_single_pair_is_a_slow_uplink_as_ever() -> None:
    done = check(fleet_of(6, 4, group_ways={"asw-1": Ways(0.4, 0.4)}))
    assert narrow(done) == {"asw-1"}
    assert not done.verdict.diagnoses
    load = done.verdict.load
    assert load is not None
    assert not any(item.is_only_together for item in load.narrow)


def test_switches_with_one_node_each_cannot_be_loaded() -> None:
    done = check(fleet_of(6, 1))
    assert done.verdict.load is None


def test_two_narrow_uplinks_of_four_are_no_design() -> None:
    for faulty in ("01", "02", "03", "12", "13", "23"):
        width = {f"asw-{at}": 1.5 for at in faulty}
        assert narrow(check(fleet_of(4, 3, uplink_pairs=width))) == set(width), faulty


def test_the_report_names_the_uplink_and_says_that_its_nodes_are_not_at_fault() -> None:
    for width, wanted in (({"asw-1": 1.3}, "RK-NET-024"), ({}, "RK-NET-005")):
        ways = {} if width else {"asw-1": Ways(0.4, 0.4)}
        fleet = fleet_of(6, 4, uplink_pairs=width, group_ways=ways)
        done = check(fleet)
        facts = tuple(NodeFacts(name) for name in fleet.nodes)
        plain = tuple(edge for edge in done.edges if not edge.under_load)
        loaded = tuple(edge for edge in done.edges if edge.under_load)
        result = CheckResult(
            fleet.nodes, facts, plain, groups=fleet.groups, mode="groups", load_edges=loaded
        )
        made = net_report(result, judge(result, Thresholds()), Thresholds())
        (found,) = [each for each in made.findings if each.status is Status.FAIL]
        assert (found.id, found.nodes) == (wanted, "n[4-7]")
        assert made.facts["verdict"] == {"nodes": [], "links": [], "groups": ["asw-1"]}
        assert made.facts["load"]["narrow"][0]["switch"] == "asw-1"
