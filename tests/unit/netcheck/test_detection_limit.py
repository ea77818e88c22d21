"""What transient slowness hides: a noisy fleet's report says so, a calm one's never does."""

from __future__ import annotations

import random

import pytest

from benchmarks.networks.simulated_fleet import SimulatedFleet, Ways, run
from relkit.findings import Finding, Status
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure import schedule
from relkit.netcheck.model import Edge, Interference, Link, NetVerdict, NodeFacts, Thresholds
from relkit.netcheck.report.report import net_report
from relkit.netcheck.solve.judge import judge

SIXTEEN = tuple(f"h{number:02d}" for number in range(16))


def verdict_of(fleet: SimulatedFleet, seed: int, mode: str = "full") -> NetVerdict:
    plan = schedule.full if mode == "full" else schedule.quick
    return run(fleet, plan(fleet.nodes), seed=seed).verdict


@pytest.mark.parametrize("mode", ["quick", "full"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 8, 16])
def test_a_calm_fleet_is_never_called_noisy(count: int, mode: str) -> None:
    nodes = SIXTEEN[:count]
    faults: list[dict[str, dict[object, Ways]]] = [
        {},
        {"node_ways": {nodes[0]: Ways(0.5, 0.5)}},
        {"node_ways": {nodes[0]: Ways(0.0, 0.0)}},
        {"node_ways": {nodes[-1]: Ways(0.5, 1.0)}, "link_ways": {Link(*nodes[:2]): Ways(0.4, 0.4)}},
    ]
    for seed in range(8):
        for ways in faults:
            fleet = SimulatedFleet(nodes, noise=0.05, **ways)  # type: ignore[arg-type]
            assert verdict_of(fleet, seed, mode).interference is None, (seed, ways)


def test_the_rate_is_about_what_it_is() -> None:
    # Shares are uniform from 0.3 to 1, and what stays above 0.88 is taken for noise.
    rates = []
    for seed in range(6):
        found = verdict_of(
            SimulatedFleet(SIXTEEN, noise=0.03, transient_rate=0.1), seed
        ).interference
        assert found is not None
        assert 0 < found.taken_back <= found.repeated
        rates.append(found.rate)
    assert sum(rates) / len(rates) == pytest.approx(0.1 * 0.58 / 0.7, abs=0.02)


@pytest.mark.parametrize(("transient_rate", "least"), [(0.1, 0.3), (0.3, 0.5)])
def test_the_smallest_loss_parts_links_that_are_seen_from_those_that_may_be_missed(
    transient_rate: float, least: float
) -> None:
    above: list[bool] = []
    below: list[bool] = []
    for seed in range(40):
        rng = random.Random(seed)  # noqa: S311  (faults, not secrets)
        loss = rng.uniform(0.12, 0.8)
        bad = Link.between(*rng.sample(SIXTEEN, 2))
        fleet = SimulatedFleet(
            SIXTEEN,
            link_ways={bad: Ways(1.0 - loss, 1.0)},
            noise=0.03,
            transient_rate=transient_rate,
            transient_min_share=least,
        )
        verdict = verdict_of(fleet, seed)
        assert verdict.interference is not None
        seen = any(c.nodes == (bad.low, bad.high) for c in verdict.diagnoses)
        (above if loss > verdict.interference.link_loss else below).append(seen)
    assert len(above) > 10
    assert sum(above) >= 0.8 * len(above)
    assert len(below) > 5
    assert sum(below) <= 0.6 * len(below)


def report_on(interference: Interference | None) -> tuple[Finding | None, object]:
    verdict = NetVerdict((), (), 1, 1, 1, interference)
    result = CheckResult(
        ("a", "b"),
        (NodeFacts("a"), NodeFacts("b")),
        (Edge("a", "b", 0, bandwidth_gbps=9.0), Edge("b", "a", 0, bandwidth_gbps=9.0)),
        mode="full",
    )
    made = net_report(result, verdict, Thresholds())
    assert made.exit_code == 0
    found = [finding for finding in made.findings if finding.id == "RK-NET-020"]
    return (found[0] if found else None), made.facts["interference"]


def test_the_report_says_the_rate_and_what_was_hidden() -> None:
    found, facts = report_on(Interference(0.081, 40, 37, 0.04, 0.36, 0.11))
    assert found is not None
    assert found.status is Status.WARN
    assert "8.1 %" in found.title
    assert "lost less than 36 %" in found.title
    assert found.advice
    assert facts == {
        "rate": 0.081,
        "repeated": 40,
        "taken_back": 37,
        "noise": 0.04,
        "smallest_link_loss": 0.36,
        "smallest_node_loss": 0.11,
    }


def test_where_nothing_slow_could_be_convicted_it_says_that() -> None:
    found, facts = report_on(Interference(0.0, 0, 0, 0.21, 1.0, 1.0))
    assert found is not None
    assert "scatter by 21 %" in found.title
    assert "but not dead" in found.title
    assert isinstance(facts, dict)
    assert facts["smallest_link_loss"] is None


def test_nothing_is_said_of_a_calm_fleet() -> None:
    assert report_on(None) == (None, None)


def test_agents_on_one_machine_are_not_called_noisy() -> None:
    played = run(SimulatedFleet(SIXTEEN, transient_rate=0.2), schedule.full(SIXTEEN))
    facts = tuple(NodeFacts(name) for name in SIXTEEN)
    result = CheckResult(SIXTEEN, facts, played.edges, one_host=True)
    assert judge(result, Thresholds()).interference is None
