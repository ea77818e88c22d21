"""Convictions and open questions in words: names, faults, severities, reasons."""

from __future__ import annotations

import math

import numpy as np

from relkit.netcheck.model import Conviction, Thresholds
from relkit.netcheck.solve.analyse import Analysis, Charge
from relkit.netcheck.solve.components import BOTH, GROUP, IN, LINK, NODE, OUT, Entity
from relkit.netcheck.solve.observations import Ints

CERTAIN = 0.9999
# A suspicion of 4.2 sigma that never got its second measurement is told, not convicted.
WORTH_TELLING = 9.0
# Directions of one entity that differ by less than this are one fault, not two.
ALIKE = 0.15


def members(found: Analysis, entity: Entity) -> tuple[str, ...]:
    """Names of the nodes that an entity stands for: one, two, or all of a group."""
    names = found.seen.nodes
    if entity.kind == NODE:
        return (names[entity.first],)
    if entity.kind == LINK:
        return tuple(sorted((names[entity.first], names[entity.second])))
    return tuple(names[at] for at in np.flatnonzero(found.seen.group == entity.first))


def title(found: Analysis, entity: Entity) -> str:
    """What to call an entity: "n3", "n3 - n7", "switch asw-2"."""
    if entity.kind == GROUP:
        return f"switch {found.seen.group_names[entity.first]}"
    return " - ".join(members(found, entity))


def conviction(found: Analysis, charge: Charge) -> Conviction:
    """The charge as the report shows it."""
    capacity = min(fault.capacity for fault in charge.faults)
    margin = min(charge.margin, 30.0)
    confidence = min(CERTAIN, 1.0 / (1.0 + math.exp(-margin)))
    return Conviction(
        nodes=members(found, charge.entity),
        kind=charge.entity.kind,
        name=title(found, charge.entity),
        fault=_fault(found, charge),
        severity=round(min(1.0, max(0.0, 1.0 - capacity)), 4),
        confidence=round(confidence, 4),
        reasons=_reasons(found, charge),
    )


def undecided_rivals(found: Analysis, charge: Charge) -> tuple[tuple[str, ...], str]:
    """Whom a charge and its rivals name, and why it could not be settled."""
    suspects = (charge.entity, *charge.rivals)
    names = sorted({name for entity in suspects for name in members(found, entity)})
    pieces = [_described(found, entity) for entity in sorted(suspects)]
    either = ", or ".join(pieces)
    lost = 1.0 - min(fault.capacity for fault in charge.faults)
    what = "failed" if lost > 0.99 else f"lost {lost:.0%}"
    count = len(_slow_edges(found, charge))
    return tuple(names), (
        f"{count} measurements {what}, but the edges cannot tell which is at fault: {either}."
    )


def undecided_common(found: Analysis, thresholds: Thresholds) -> tuple[tuple[str, ...], str]:
    """Everyone, where too few edges are at full speed to single anybody out."""
    held = "the baseline" if thresholds.baseline else "the bounds and the fleet's own best"
    return tuple(sorted(found.seen.nodes)), (
        f"More than half of the nodes have no edge at full speed by {held}: the network as a "
        "whole is slow, or the bound is wrong; no node can be singled out."
    )


def undecided_suspicions(found: Analysis) -> list[tuple[tuple[str, ...], str]]:
    """Strong suspicions that rest on too little to convict, one for the same measurements."""
    told: set[int] = set()
    sentences = []
    for entity, nats in found.weak:
        slow = _suspect_edges(found, entity)
        if nats < WORTH_TELLING or told & slow or not slow:
            continue
        told |= slow
        count = "one measurement" if len(slow) == 1 else f"{len(slow)} measurements"
        least = min(float(found.seen.ratio[edge]) for edge in slow)
        reached = f"as low as {least:.0%} of what is expected" if least > 0.0 else "failed"
        names = set(members(found, entity))
        if entity.kind == NODE:
            ways = (found.seen.source, found.seen.target)
            names |= {found.seen.nodes[int(way[edge])] for edge in slow for way in ways}
        what = _described(found, entity)
        sentence = f"Suspicion on {what}: {count} {reached}; too little to convict, measure again."
        sentences.append((tuple(sorted(names)), sentence))
    return sentences


def undecided_unproven(found: Analysis) -> tuple[tuple[str, ...], str]:
    """Nodes that no measurement shows to be healthy."""
    names = tuple(sorted(found.seen.nodes[at] for at in found.unproven))
    return names, (
        "Not proven healthy: never measured, or only with partners that are at fault themselves."
    )


def undecided_across(found: Analysis) -> tuple[tuple[str, ...], str]:
    """All members of switches, where the network between these is slower than inside."""
    places = np.flatnonzero(found.seen.group >= 0)
    names = tuple(sorted(found.seen.nodes[at] for at in places))
    return names, (
        f"Between switches most pairs reach {found.across:.0%} of the speed inside them: the "
        "network above the switches is oversubscribed, or its fault is common to most uplinks."
    )


def _suspect_edges(found: Analysis, entity: Entity) -> set[int]:
    """The unexplained slow measurements behind a weak suspicion."""
    slow: set[int] = set()
    for component in found.explanation.candidates.component.tolist():
        if found.parts.entity(component) == entity:
            for edge in found.parts.edges_of(component).tolist():
                behind = found.seen.ratio[edge] - found.explanation.capacity[edge]
                if behind < -2.0 * found.seen.noise:
                    slow.add(edge)
    return slow


def _described(found: Analysis, entity: Entity) -> str:
    kind = {NODE: "node", LINK: "the link", GROUP: "the uplink of"}[entity.kind]
    return f"{kind} {title(found, entity)}"


def _slow_edges(found: Analysis, charge: Charge) -> Ints:
    own = np.unique(np.concatenate([found.parts.edges_of(one.component) for one in charge.faults]))
    slow: Ints = own[found.explanation.capacity[own] < 1.0]
    return slow


def _fault(found: Analysis, charge: Charge) -> str:
    slow = _slow_edges(found, charge)
    failed = int(np.count_nonzero(found.seen.ratio[slow] <= 0.0))
    if 2 * failed > len(slow):
        return "dead"
    if charge.entity.kind == GROUP:
        return "slow uplink"
    ways = {found.parts.way(fault.component): fault.capacity for fault in charge.faults}
    both = ways.get(BOTH, 1.0)
    out, into = min(both, ways.get(OUT, 1.0)), min(both, ways.get(IN, 1.0))
    if charge.entity.kind == LINK or (abs(out - into) < ALIKE and max(out, into) < 1.0):
        return "slow"
    return "slow out" if out < into else "slow in"


def _reasons(found: Analysis, charge: Charge) -> tuple[str, ...]:
    seen = found.seen
    slow = _slow_edges(found, charge)
    own = np.unique(np.concatenate([found.parts.edges_of(one.component) for one in charge.faults]))
    failed = int(np.count_nonzero(seen.ratio[slow] <= 0.0))
    named = int(np.count_nonzero(seen.accused[slow] >= 0))
    reasons = []
    if named:
        reasons.append(f"{named} measurements failed because the node itself did not answer")
    if failed - named:
        reasons.append(f"{failed - named} of {len(own)} measurements failed")
    carried = seen.ratio[slow][seen.ratio[slow] > 0.0]
    if len(carried):
        level, expected = float(np.median(carried)), float(np.median(seen.expected[slow]))
        reasons.append(
            f"{len(carried)} of {len(own)} measurements ran at a median of {level:.0%} of the "
            f"expected {expected:.3g} Gbit/s"
        )
    reasons.append(_why_not_others(charge))
    reasons.append(f"noise of one measurement: {seen.noise:.1%}")
    return tuple(reasons)


def _why_not_others(charge: Charge) -> str:
    rounds = f"{charge.rounds} round{'s' if charge.rounds != 1 else ''}"
    if charge.entity.kind == NODE:
        return f"slow or failing with {charge.partners} different partners in {rounds}"
    if charge.entity.kind == LINK:
        return f"seen in {rounds}; both ends are fine with other nodes"
    return f"its members are fine among themselves; seen crossing in {rounds}"
