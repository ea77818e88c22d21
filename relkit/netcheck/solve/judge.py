"""The verdict on a check: the same during the check and from a saved bundle."""

from __future__ import annotations

from dataclasses import replace

from relkit.netcheck.check_result import CheckResult, could_not_run, is_down
from relkit.netcheck.model import Diagnosis, NetVerdict, Thresholds
from relkit.netcheck.solve.verdict import solve

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
    verdict = solve(edges, answered, thresholds, result.groups)
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
    )


def _dead(node: str, why: str) -> Diagnosis:
    return Diagnosis((node,), "node", node, "dead", 1.0, _UNREACHABLE_CONFIDENCE, (why,))
