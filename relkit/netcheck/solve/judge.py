"""The verdict on a check: the same during the check and from a saved bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from relkit.netcheck.check_result import CheckResult, could_not_run, is_down
from relkit.netcheck.model import Diagnosis, Edge, NetVerdict, Thresholds
from relkit.netcheck.solve.analyse import Analysis, analyse
from relkit.netcheck.solve.detection_limit import detection_limits
from relkit.netcheck.solve.load_tests import clear_of, load_verdict
from relkit.netcheck.solve.wording import (
    diagnosis,
    inconclusive_alternatives,
    inconclusive_cross_switch,
    inconclusive_suspicions,
    inconclusive_unproven,
    inconclusive_whole_fleet,
)

_UNREACHABLE_CONFIDENCE = 0.99
"""Confidence that a host which cannot be reached is dead: the fault might be on our side."""


def has_bounds(thresholds: Thresholds) -> bool:
    """The user has set a limit that does not come from the fleet itself."""
    return bool(
        thresholds.min_bandwidth_gbps > 0 or thresholds.max_latency_us > 0 or thresholds.baseline
    )


def judge(result: CheckResult, thresholds: Thresholds) -> NetVerdict:
    """Who is at fault: what the solver makes of the edges, and the hosts that are not there."""
    answered = [facts.name for facts in result.facts if facts.answered]
    # A probe that could not run says nothing about the network; the report calls it unknown.
    edges = [edge for edge in result.edges if not could_not_run(edge)]
    if result.one_host and not has_bounds(thresholds):
        # The loopback has no links: a slow pair there only waits for the processor.
        edges = [replace(edge, bandwidth_gbps=1.0) if not edge.failure else edge for edge in edges]
    load = load_verdict(edges, result.load_edges, result.groups, thresholds.slow_fraction)
    verdict = solve(clear_of(edges, load, result.groups), answered, thresholds, result.groups)
    diagnosed = {item.nodes[0] for item in verdict.diagnoses if item.kind == "node"}
    gone = [
        _dead(facts.name, f"its host could not be reached: {facts.detail}")
        for facts in result.facts
        if is_down(facts)
    ]
    gone += [
        _dead(node, f"its agent was lost during the check: {why}")
        for node, why in result.lost.items()
        if node not in diagnosed
    ]
    count = len(result.nodes)
    return replace(
        verdict,
        diagnoses=(*gone, *verdict.diagnoses),
        possible_links=count * (count - 1) // 2,
        rounds=result.rounds,
        load=load,
    )


def _dead(node: str, why: str) -> Diagnosis:
    return Diagnosis((node,), "node", node, "dead", 1.0, _UNREACHABLE_CONFIDENCE, (why,))


def solve(
    edges: Sequence[Edge],
    nodes: Sequence[str],
    thresholds: Thresholds | None = None,
    groups: Mapping[str, str] | None = None,
) -> NetVerdict:
    """Judge a fleet by everything that was measured.

    Args:
        edges: of all rounds, both directions, failures included.
        nodes: all nodes of the fleet, each once, measured or not.
        thresholds: the defaults where None.
        groups: node -> switch; without it no uplink is judged.
    """
    bounds = thresholds or Thresholds()
    return verdict_of(analyse(edges, nodes, bounds, groups or {}), edges, bounds)


def verdict_of(analysis: Analysis, edges: Sequence[Edge], thresholds: Thresholds) -> NetVerdict:
    """Put an analysis into words."""
    known = set(analysis.seen.nodes)
    ours = [edge for edge in edges if edge.source in known and edge.target in known]
    tested = {edge.link for edge in ours if not edge.accused and edge.source != edge.target}
    count = len(known)
    inconclusive = [
        inconclusive_alternatives(analysis, candidate)
        for candidate in analysis.candidates
        if candidate.alternatives
    ]
    inconclusive += inconclusive_suspicions(analysis)
    if analysis.cross_switch_share < 1.0 - thresholds.slow_fraction:
        inconclusive.append(inconclusive_cross_switch(analysis))
    if analysis.common:
        inconclusive.append(inconclusive_whole_fleet(analysis, thresholds))
    elif analysis.unproven and count > 1:
        inconclusive.append(inconclusive_unproven(analysis))
    by_members = {frozenset(names): (names, text) for names, text in reversed(inconclusive)}
    return NetVerdict(
        diagnoses=tuple(
            diagnosis(analysis, candidate)
            for candidate in analysis.candidates
            if not candidate.alternatives
        ),
        inconclusive=tuple(by_members[key] for key in sorted(by_members, key=sorted)),
        tested_links=len(tested),
        possible_links=count * (count - 1) // 2,
        rounds=len({edge.round for edge in ours}),
        interference=detection_limits(analysis, thresholds.slow_fraction),
    )
