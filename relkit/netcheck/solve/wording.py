"""Diagnoses and open questions in words: names, faults, severities, reasons."""

from __future__ import annotations

import math

import numpy as np

from relkit.netcheck.model import Diagnosis, Thresholds
from relkit.netcheck.solve.analyse import Analysis, Candidate
from relkit.netcheck.solve.components import BOTH, GROUP, IN, LINK, NODE, OUT, Entity
from relkit.netcheck.solve.observations import Ints

MAX_CONFIDENCE = 0.9999
# A suspicion of 4.2 sigma that never got its second measurement is reported, without a diagnosis.
WORTH_REPORTING = 9.0
# Directions of one entity that differ by less than this are one fault, not two.
ALIKE = 0.15


def members(analysis: Analysis, entity: Entity) -> tuple[str, ...]:
    """Names of the nodes that an entity stands for: one, two, or all of a group."""
    names = analysis.seen.nodes
    if entity.kind == NODE:
        return (names[entity.first],)
    if entity.kind == LINK:
        return tuple(sorted((names[entity.first], names[entity.second])))
    return tuple(names[at] for at in np.flatnonzero(analysis.seen.group == entity.first))


def title(analysis: Analysis, entity: Entity) -> str:
    """What to call an entity: "n3", "n3 - n7", "switch asw-2"."""
    if entity.kind == GROUP:
        return f"switch {analysis.seen.group_names[entity.first]}"
    return " - ".join(members(analysis, entity))


def diagnosis(analysis: Analysis, candidate: Candidate) -> Diagnosis:
    """The candidate as the report shows it."""
    capacity = min(fault.capacity for fault in candidate.faults)
    margin = min(candidate.margin, 30.0)
    confidence = min(MAX_CONFIDENCE, 1.0 / (1.0 + math.exp(-margin)))
    return Diagnosis(
        nodes=members(analysis, candidate.entity),
        kind=candidate.entity.kind,
        name=title(analysis, candidate.entity),
        fault=_fault(analysis, candidate),
        severity=round(min(1.0, max(0.0, 1.0 - capacity)), 4),
        confidence=round(confidence, 4),
        reasons=_reasons(analysis, candidate),
    )


def inconclusive_alternatives(
    analysis: Analysis, candidate: Candidate
) -> tuple[tuple[str, ...], str]:
    """The nodes of a candidate and its alternatives, and why one of them cannot be singled out."""
    suspects = (candidate.entity, *candidate.alternatives)
    names = sorted({name for entity in suspects for name in members(analysis, entity)})
    either = ", or ".join(_described(analysis, entity) for entity in sorted(suspects))
    lost = 1.0 - min(fault.capacity for fault in candidate.faults)
    count = len(_slow_edges(analysis, candidate))
    what = _counted(count, "measurement") + (" failed" if lost > 0.99 else f" lost {lost:.0%}")
    return tuple(names), f"{what}, and the cause cannot be told apart: {either}."


def inconclusive_whole_fleet(
    analysis: Analysis, thresholds: Thresholds
) -> tuple[tuple[str, ...], str]:
    """All nodes, where too few edges are at full speed to single out any of them."""
    reference = "the baseline" if thresholds.baseline else "the bounds and the fastest edges"
    return tuple(sorted(analysis.seen.nodes)), (
        f"More than half of the nodes have no edge at full speed, measured by {reference}: either "
        "the whole network is slow or the bound is wrong. No node can be singled out."
    )


def inconclusive_suspicions(analysis: Analysis) -> list[tuple[tuple[str, ...], str]]:
    """Strong suspicions that rest on too few measurements; each set of measurements once."""
    reported: set[int] = set()
    sentences = []
    for entity, gain in analysis.weak:
        slow = _suspect_edges(analysis, entity)
        if gain < WORTH_REPORTING or reported & slow or not slow:
            continue
        reported |= slow
        lowest = min(float(analysis.seen.ratio[edge]) for edge in slow)
        measured = _counted(len(slow), "measurement")
        result = f"reached only {lowest:.0%} of what is expected" if lowest > 0.0 else "failed"
        names = set(members(analysis, entity))
        if entity.kind == NODE:
            ways = (analysis.seen.source, analysis.seen.target)
            names |= {analysis.seen.nodes[int(way[edge])] for edge in slow for way in ways}
        suspect = _described(analysis, entity)
        sentence = (
            f"{suspect[0].upper()}{suspect[1:]} may be at fault: {measured} {result}, too few for "
            "a diagnosis. Measure again."
        )
        sentences.append((tuple(sorted(names)), sentence))
    return sentences


def inconclusive_unproven(analysis: Analysis) -> tuple[tuple[str, ...], str]:
    """Nodes that no measurement shows to be healthy."""
    names = tuple(sorted(analysis.seen.nodes[at] for at in analysis.unproven))
    return names, (
        "Not known to be healthy: never measured, or only with partners that are at fault."
    )


def inconclusive_cross_switch(analysis: Analysis) -> tuple[tuple[str, ...], str]:
    """All nodes behind switches, where the network between the switches is slower than inside."""
    places = np.flatnonzero(analysis.seen.group >= 0)
    names = tuple(sorted(analysis.seen.nodes[at] for at in places))
    return names, (
        f"Between switches most pairs reach {analysis.cross_switch_share:.0%} of the speed inside "
        "them: the network above the switches is oversubscribed, or most uplinks share a fault."
    )


def _counted(count: int, what: str) -> str:
    return f"one {what}" if count == 1 else f"{count} {what}s"


def _suspect_edges(analysis: Analysis, entity: Entity) -> set[int]:
    """The unexplained slow measurements behind a weak suspicion."""
    slow: set[int] = set()
    for component in analysis.explanation.suspects.component.tolist():
        if analysis.parts.entity(component) == entity:
            for edge in analysis.parts.edges_of(component).tolist():
                behind = analysis.seen.ratio[edge] - analysis.explanation.capacity[edge]
                if behind < -2.0 * analysis.seen.noise:
                    slow.add(edge)
    return slow


def _described(analysis: Analysis, entity: Entity) -> str:
    kind = {NODE: "node", LINK: "the link", GROUP: "the uplink of"}[entity.kind]
    return f"{kind} {title(analysis, entity)}"


def _slow_edges(analysis: Analysis, candidate: Candidate) -> Ints:
    own = np.unique(
        np.concatenate([analysis.parts.edges_of(fault.component) for fault in candidate.faults])
    )
    slow: Ints = own[analysis.explanation.capacity[own] < 1.0]
    return slow


def _fault(analysis: Analysis, candidate: Candidate) -> str:
    slow = _slow_edges(analysis, candidate)
    failed = int(np.count_nonzero(analysis.seen.ratio[slow] <= 0.0))
    if 2 * failed > len(slow):
        return "dead"
    if candidate.entity.kind == GROUP:
        return "slow uplink"
    ways = {analysis.parts.way(fault.component): fault.capacity for fault in candidate.faults}
    both = ways.get(BOTH, 1.0)
    out, into = min(both, ways.get(OUT, 1.0)), min(both, ways.get(IN, 1.0))
    if candidate.entity.kind == LINK or (abs(out - into) < ALIKE and max(out, into) < 1.0):
        return "slow"
    return "slow out" if out < into else "slow in"


def _reasons(analysis: Analysis, candidate: Candidate) -> tuple[str, ...]:
    seen = analysis.seen
    slow = _slow_edges(analysis, candidate)
    own = np.unique(
        np.concatenate([analysis.parts.edges_of(fault.component) for fault in candidate.faults])
    )
    failed = int(np.count_nonzero(seen.ratio[slow] <= 0.0))
    named = int(np.count_nonzero(seen.accused[slow] >= 0))
    reasons = []
    if named:
        reasons.append(
            f"{_counted(named, 'measurement')} failed because the node itself did not answer"
        )
    if failed - named:
        reasons.append(f"{failed - named} of {len(own)} measurements failed")
    carried = seen.ratio[slow][seen.ratio[slow] > 0.0]
    if len(carried):
        level, expected = float(np.median(carried)), float(np.median(seen.expected[slow]))
        reasons.append(
            f"{len(carried)} of {len(own)} measurements ran at a median of {level:.0%} of the "
            f"expected {expected:.3g} Gbit/s"
        )
    reasons.append(_why_not_others(candidate))
    reasons.append(f"noise of one measurement: {seen.noise:.1%}")
    return tuple(reasons)


def _why_not_others(candidate: Candidate) -> str:
    rounds = f"{candidate.rounds} round{'s' if candidate.rounds != 1 else ''}"
    if candidate.entity.kind == NODE:
        return f"slow or failing with {candidate.partners} different partners in {rounds}"
    if candidate.entity.kind == LINK:
        return f"slow or failing in {rounds}; both ends work with other nodes"
    return f"its nodes are fast among themselves, and slow to other switches in {rounds}"
