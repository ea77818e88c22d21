"""What one check has seen, and the judgement of it: the same online and from a saved bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from relkit.netcheck.device_score import DeviceScore
from relkit.netcheck.model import Conviction, Edge, Failure, NetVerdict, NodeFacts, Thresholds
from relkit.netcheck.solve.verdict import solve

_SURE = 0.99
"""That a host is out of use which this one cannot reach: the fault might be on our side."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a check has measured.

    Args:
        nodes: all names, in the order in which the user gave them.
        facts: one entry a node, same order; those that never answered have `answered` unset.
        edges: all measurements of all rounds.
        lost: nodes whose agent was lost during the check, and how.
        groups: node -> switch; empty where no topology was given.
        twins: names that turned out to be one and the same machine.
        mode, probe: as asked for.
        rounds: rounds used.
        one_host: all agents shared one machine's network stack, so that every figure is that of
            its processor.
        notes: what else the person should know.
        scores: of devices, where they were asked for; score_errors: by node, why there are none.
    """

    nodes: tuple[str, ...]
    facts: tuple[NodeFacts, ...]
    edges: tuple[Edge, ...]
    lost: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    twins: tuple[tuple[str, ...], ...] = ()
    mode: str = "quick"
    probe: str = "tcp"
    rounds: int = 0
    notes: tuple[str, ...] = ()
    one_host: bool = False
    scores: tuple[DeviceScore, ...] = ()
    score_errors: Mapping[str, str] = field(default_factory=dict)


def is_down(facts: NodeFacts) -> bool:
    """The node did not answer, and what was said instead means that the host is not there."""
    return not facts.answered and facts.host_down


def could_not_run(edge: Edge) -> bool:
    """The probe itself failed: a tool is missing, an address unknown, a figure makes no sense."""
    return edge.failure is Failure.PROBE_ERROR and not edge.accused


def has_bounds(thresholds: Thresholds) -> bool:
    """The user has set a measure that does not come from the fleet itself."""
    return bool(
        thresholds.min_bandwidth_gbps > 0 or thresholds.max_latency_us > 0 or thresholds.baseline
    )


def judge(outcome: Outcome, thresholds: Thresholds) -> NetVerdict:
    """Who is at fault: the solver's view of the edges, and the hosts that are not there at all."""
    looked_at = [facts.name for facts in outcome.facts if facts.answered]
    # A probe that could not run says nothing of the network; the report has it as unknown.
    told = [edge for edge in outcome.edges if not could_not_run(edge)]
    if outcome.one_host and not has_bounds(thresholds):
        # The loopback has no links: what is slower than the rest there waits for the processor.
        told = [replace(edge, bandwidth_gbps=1.0) if not edge.failure else edge for edge in told]
    verdict = solve(told, looked_at, thresholds, outcome.groups)
    convicted = {c.nodes[0] for c in verdict.convictions if c.kind == "node"}
    gone = [
        _dead(facts.name, f"its host could not be reached: {facts.detail}")
        for facts in outcome.facts
        if is_down(facts)
    ]
    gone += [
        _dead(node, f"its agent was lost during the check: {why}")
        for node, why in outcome.lost.items()
        if node not in convicted
    ]
    count = len(outcome.nodes)
    return replace(
        verdict,
        convictions=(*gone, *verdict.convictions),
        possible_links=count * (count - 1) // 2,
        rounds=outcome.rounds,
    )


def _dead(node: str, why: str) -> Conviction:
    return Conviction((node,), "node", node, "dead", 1.0, _SURE, (why,))
