"""What edges say about a fleet: likely faults, alternatives, weak suspicions, healthy nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from relkit.netcheck.model import Edge, Thresholds
from relkit.netcheck.solve.components import GROUP, NODE, Components, Entity, components_of
from relkit.netcheck.solve.explain import (
    Explanation,
    Fault,
    explain,
    path_capacity,
    path_noise,
    price_of,
)
from relkit.netcheck.solve.likelihood import best_faults
from relkit.netcheck.solve.observations import Observations, observe
from relkit.netcheck.solve.transient_slowdown import with_interference

# An alternative explanation whose log-likelihood is this close (odds of 400 to 1) leaves the
# question open.
MARGIN = 6.0
# A suspicion that is worth another measurement: 2.4 sigma.
WEAK = 3.0
# Enough to measure a single link again where every pair is measured anyway: 1.9 sigma. A loss of
# a fifth in one direction falls below that once in 200 times.
FAINT = 1.8


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity that is probably at fault.

    Args:
        entity: which one.
        faults: one fault, or one for each direction.
        margin: by how much its log-likelihood exceeds that of the next best explanation.
        alternatives: others that explain the same edges nearly as well; if there are any, the
            question is inconclusive.
        rounds: distinct rounds that it rests on.
        partners: distinct far ends.
    """

    entity: Entity
    faults: tuple[Fault, ...]
    margin: float
    alternatives: tuple[Entity, ...]
    rounds: int
    partners: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that the verdict and the next round are made from.

    Args:
        candidates: strongest first.
        weak: suspicions too weak for a diagnosis and too strong to drop, each with its gain in
            log-likelihood, strongest first; for links also faint ones, from FAINT upwards.
        healthy: nodes with an edge at full speed and no suspicion.
        common: most nodes have no edge at full speed, so nobody can be singled out.
        unproven: nodes that are no candidates and have no edge at full speed: they were never
            measured, or only with partners at fault.
        cross_switch_share: speed between switches as a share of the speed inside them, if most
            uplinks looked slow and were therefore compared with each other only; else 1.
    """

    seen: Observations
    parts: Components
    explanation: Explanation
    candidates: tuple[Candidate, ...]
    weak: tuple[tuple[Entity, float], ...]
    healthy: NDArray[np.bool_]
    common: bool
    unproven: tuple[int, ...] = ()
    cross_switch_share: float = 1.0


def analyse(
    edges: Sequence[Edge],
    nodes: Sequence[str],
    thresholds: Thresholds,
    groups: Mapping[str, str],
) -> Analysis:
    """Explain edges by faults; see docs/netcheck-method.md for the model."""
    analysis = _analyse(observe(edges, nodes, thresholds, groups), thresholds)
    uplinks = sum(candidate.entity.kind == GROUP for candidate in analysis.candidates)
    # If most uplinks look slow, the network above the switches is slow: judge it by its own level.
    if uplinks * 2 > len(analysis.seen.group_names):
        apart = observe(edges, nodes, thresholds, groups, split=True)
        share = _cross_switch_share(apart)
        return replace(_analyse(apart, thresholds), cross_switch_share=share)
    return analysis


def _analyse(seen: Observations, thresholds: Thresholds) -> Analysis:
    top = np.full(len(seen.nodes), -1.0)
    plain = seen.accused < 0
    for ends in (seen.source, seen.target):
        np.maximum.at(top, ends[plain], seen.ratio[plain])
    floor = 1.0 - thresholds.slow_fraction
    measured = int(np.count_nonzero(top >= 0.0))
    common = 2 * int(np.count_nonzero((top >= 0.0) & (top < floor))) > measured > 2
    view = _only_accused(seen) if common else seen
    parts = components_of(view)
    explanation = explain(view, parts, thresholds.slow_fraction)
    disturbed = _disturbed(view, parts, explanation)
    if disturbed is not view:
        view = disturbed
        explanation = explain(view, parts, thresholds.slow_fraction)
    candidates = _candidates(view, parts, explanation, thresholds.slow_fraction)
    weak = _weak(view, parts, explanation, candidates, thresholds.slow_fraction)
    suspected = [
        entity for candidate in candidates for entity in (candidate.entity, *candidate.alternatives)
    ]
    doubted = suspected + [entity for entity, gain in weak if gain > WEAK]
    healthy = top >= floor
    healthy[[entity.first for entity in doubted if entity.kind == NODE]] = False
    known = {entity.first for entity in suspected if entity.kind == NODE}
    unproven = tuple(node for node in np.flatnonzero(top < floor).tolist() if node not in known)
    return Analysis(view, parts, explanation, candidates, weak, healthy, common, unproven)


def _disturbed(seen: Observations, parts: Components, explanation: Explanation) -> Observations:
    """The measurements, weighted by interference; the same object if there was none."""
    wide = {
        fault.component: fault.capacity
        for fault in explanation.faults
        if not parts.is_link(fault.component)
    }
    if not len(seen.ratio):
        return seen
    capacity = path_capacity(wide, parts, len(seen.ratio))
    noise = path_noise(wide, seen, parts)
    weighted = with_interference(seen, capacity, noise, explanation.capacity >= 1.0)
    is_changed = weighted.noise > seen.noise or weighted.transients is not seen.transients
    return weighted if is_changed else seen


def _cross_switch_share(apart: Observations) -> float:
    crosses = apart.crosses
    if crosses.all() or not crosses.any():
        return 1.0
    return float(np.median(apart.expected[crosses]) / np.median(apart.expected[~crosses]))


def _only_accused(seen: Observations) -> Observations:
    keep = seen.accused >= 0
    return replace(
        seen,
        source=seen.source[keep],
        target=seen.target[keep],
        round=seen.round[keep],
        ratio=seen.ratio[keep],
        accused=seen.accused[keep],
        expected=seen.expected[keep],
        weight=seen.weight[keep],
    )


def _candidates(
    seen: Observations, parts: Components, explanation: Explanation, slow_fraction: float
) -> tuple[Candidate, ...]:
    by_entity: dict[Entity, list[Fault]] = {}
    for fault in explanation.faults:
        by_entity.setdefault(parts.entity(fault.component), []).append(fault)
    candidates = []
    for entity, faults in by_entity.items():
        margin, alternatives = float("inf"), set()
        for fault in faults:
            own = fault.gain - fault.price
            margin = min(margin, own)
            for other, worth in _alternatives(fault, seen, parts, explanation, slow_fraction):
                margin = min(margin, own - worth)
                if own - worth < MARGIN:
                    alternatives.add(other)
        edges = np.unique(np.concatenate([parts.edges_of(fault.component) for fault in faults]))
        slow = edges[explanation.capacity[edges] < 1.0]
        ends = set(seen.source[slow].tolist()) | set(seen.target[slow].tolist())
        candidates.append(
            Candidate(
                entity,
                tuple(faults),
                margin,
                tuple(sorted(alternatives)),
                len(np.unique(seen.round[slow])),
                len(ends - {entity.first}),
            )
        )
    return tuple(sorted(candidates, key=lambda candidate: (-candidate.margin, candidate.entity)))


def _alternatives(
    fault: Fault,
    seen: Observations,
    parts: Components,
    explanation: Explanation,
    slow_fraction: float,
) -> Iterator[tuple[Entity, float]]:
    """Others that would explain the edges of a fault in its place, and how well each would."""
    active = {known.component: known.capacity for known in explanation.faults}
    suspects = explanation.suspects
    without = path_capacity(active, parts, len(seen.ratio), without=fault.component)
    mine = np.zeros(len(seen.ratio), dtype=bool)
    mine[parts.edges_of(fault.component)] = True
    noise = path_noise(active, seen, parts, without=fault.component)
    _, gains = best_faults(suspects, seen, without, noise, slow_fraction)
    touching = np.unique(suspects.owner[mine[suspects.edge]])
    for place in touching.tolist():
        component = int(suspects.component[place])
        other = parts.entity(component)
        if other != parts.entity(fault.component) and component not in active:
            yield other, float(gains[place]) - price_of(parts, component)


def _weak(
    seen: Observations,
    parts: Components,
    explanation: Explanation,
    candidates: tuple[Candidate, ...],
    slow_fraction: float,
) -> tuple[tuple[Entity, float], ...]:
    suspects = explanation.suspects
    left, gains = best_faults(
        suspects, seen, explanation.capacity, explanation.noise, slow_fraction
    )
    suspected = {candidate.entity for candidate in candidates}
    best: dict[Entity, float] = {}
    doubtful = gains > np.where(suspects.is_link, FAINT, WEAK)
    for place in np.flatnonzero(doubtful & (left <= 1.0 - slow_fraction)).tolist():
        entity = parts.entity(int(suspects.component[place]))
        if entity not in suspected:
            best[entity] = max(best.get(entity, 0.0), float(gains[place]))
    return tuple(sorted(best.items(), key=lambda item: (-item[1], item[0])))
