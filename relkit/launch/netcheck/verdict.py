"""What follows from a network check for a job: who leaves, who is only warned about (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from relkit.hosts import fold
from relkit.netcheck.check_result import could_not_run
from relkit.netcheck.model import Edge, NetVerdict


@dataclass(frozen=True, slots=True)
class Decision:
    """Who is to leave the job.

    Args:
        leave: name -> why; in the order of the diagnoses.
        warnings: what is wrong but makes no node leave, one sentence each.
    """

    leave: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def decide(
    verdict: NetVerdict,
    bad_links: Mapping[str, str],
    *,
    exclude_stragglers: bool,
    slow_devices: Mapping[str, str] = MappingProxyType({}),
) -> Decision:
    """Turn diagnoses into a decision.

    A dead node leaves, a slow one only where that is asked for. Links and uplinks name no node
    that could be left out, and an ambiguous fault makes no node leave.

    Args:
        verdict: of the network check.
        bad_links: node -> why, of those whose own link check failed.
        exclude_stragglers: slow nodes leave too.
        slow_devices: node -> why, of those with a slow device; asked for with exclude_stragglers.
    """
    leave = dict(bad_links)
    warnings: list[str] = []
    for item in verdict.diagnoses:
        why = f"{item.fault}: {item.reasons[0]}" if item.reasons else item.fault
        if item.kind != "node":
            warnings.append(f"{item.name} is {why}")
        elif item.fault == "dead" or exclude_stragglers:
            leave.setdefault(item.nodes[0], why)
        elif item.nodes[0] not in leave:
            warnings.append(f"{item.name} is {why}; it stays (--exclude-straggler is not given)")
    for name, why in slow_devices.items():
        leave.setdefault(name, why)
    warnings += [sentence for _, sentence in verdict.inconclusive]
    return Decision(leave, tuple(warnings))


def not_measured(edges: Sequence[Edge], probe: str) -> list[str]:
    """A sentence for each reason why the probe itself could not run: nothing is known there."""
    nodes: dict[str, set[str]] = {}
    for edge in edges:
        if could_not_run(edge):
            nodes.setdefault(edge.detail or "the probe failed", set()).update(
                (edge.source, edge.target)
            )
    return [f"{probe} could not measure {fold(nodes[why])}: {why}" for why in nodes]


def how_to_go_on(
    nodes: int, leaving: int, *, min_nodes: int, can_meet_again: bool, loses_store: bool
) -> str:
    """Why the job cannot continue without the nodes that leave; "" where it can.

    Args:
        nodes: in the job now; leaving: of them.
        min_nodes: the minimum that --nnodes allows.
        can_meet_again: the rendezvous lets the rest form a smaller job.
        loses_store: the rendezvous store is on a node that leaves.
    """
    left = nodes - leaving
    if left < min_nodes:
        return f"{left} of {nodes} nodes are left, and the job needs {min_nodes} (--nnodes)"
    if not can_meet_again:
        return "a static rendezvous cannot continue with fewer nodes (use --rdzv-backend c10d)"
    if loses_store:
        return "the rendezvous store is on a node that leaves (name another --rdzv-endpoint)"
    return ""
