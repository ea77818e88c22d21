"""Everything that one check has measured: made by the controller, or read from a saved bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relkit.netcheck.device_score import DeviceScore
from relkit.netcheck.model import Edge, Failure, NodeFacts


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Everything that a check has measured; it mirrors the files of a bundle.

    Args:
        nodes: all names, in the order in which the user gave them.
        facts: one entry per node, in the same order; a node that never answered has `answered`
            unset.
        edges: all measurements of all rounds but those under load.
        load_edges: those made while all pairs of two switches were measured at once, on purpose.
        lost: nodes whose agent was lost during the check, and how.
        groups: node -> switch; empty if no topology was given.
        duplicate_hosts: groups of names that turned out to be one and the same machine.
        mode, probe: as asked for.
        rounds: rounds used.
        one_host: all agents shared one machine's network stack, so every bandwidth is limited by
            that machine's processor.
        notes: remarks for the user.
        scores: of the devices, if they were asked for; score_errors: node -> why it has none.
    """

    nodes: tuple[str, ...]
    facts: tuple[NodeFacts, ...]
    edges: tuple[Edge, ...]
    lost: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    duplicate_hosts: tuple[tuple[str, ...], ...] = ()
    mode: str = "quick"
    probe: str = "tcp"
    rounds: int = 0
    notes: tuple[str, ...] = ()
    one_host: bool = False
    scores: tuple[DeviceScore, ...] = ()
    score_errors: Mapping[str, str] = field(default_factory=dict)
    load_edges: tuple[Edge, ...] = ()


def is_down(facts: NodeFacts) -> bool:
    """The node did not answer, and the error says that the host itself cannot be reached."""
    return not facts.answered and facts.host_down


def could_not_run(edge: Edge) -> bool:
    """The probe itself failed: a tool is missing, an address unknown, a result makes no sense."""
    return edge.failure is Failure.PROBE_ERROR and not edge.accused
