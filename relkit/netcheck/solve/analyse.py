"""What edges say about a fleet: faults, rival explanations, weak suspicions, proven health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

# A rival explanation within this many nats (odds of 400 to 1) leaves the question open.
MARGIN = 6.0
# A suspicion worth another measurement: 2.4 sigma.
WEAK = 3.0
# What a second look at a single link needs where every pair is looked at anyway: 1.9 sigma. A
# loss of a fifth in one direction reads less than that once in 200 times.
FAINT = 1.8


@dataclass(frozen=True, slots=True)
class Charge:
    """An entity held to be at fault.

    Args:
        entity: who; faults: one, or one a direction.
        margin: nats by which this beats the next best account of the same edges.
        rivals: others that explain the same edges nearly as well; not empty = undecided.
        rounds: distinct rounds that it rests on; partners: distinct far ends.
    """

    entity: Entity
    faults: tuple[Fault, ...]
    margin: float
    rivals: tuple[Entity, ...]
    rounds: int
    partners: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that the verdict and the next round are made from.

    Args:
        charges: strongest first.
        weak: suspicions too weak to convict and too strong to drop, with nats, strongest first;
            of links also faint ones, from FAINT on.
        healthy: nodes with an edge at full speed and no suspicion.
        common: most nodes have no edge at full speed, so that nobody can be singled out.
        unproven: nodes without an edge at full speed whom nothing charges: never measured, or
            seen only with partners at fault.
        across: speed between switches as a share of that inside, where most uplinks looked slow
            and were held to their own level; else 1.
    """

    seen: Observations
    parts: Components
    explanation: Explanation
    charges: tuple[Charge, ...]
    weak: tuple[tuple[Entity, float], ...]
    healthy: NDArray[np.bool_]
    common: bool
    unproven: tuple[int, ...] = ()
    across: float = 1.0


def analyse(
    edges: Sequence[Edge],
    nodes: Sequence[str],
    thresholds: Thresholds,
    groups: Mapping[str, str],
) -> Analysis:
    """Explain edges by faults; see docs/netcheck-method.md for the model."""
    found = _analyse(observe(edges, nodes, thresholds, groups), thresholds)
    uplinks = sum(charge.entity.kind == GROUP for charge in found.charges)
    # Where most uplinks look slow, the network between the switches is: hold it to its own level.
    if uplinks * 2 > len(found.seen.group_names):
        apart = observe(edges, nodes, thresholds, groups, split=True)
        return replace(_analyse(apart, thresholds), across=_across(apart))
    return found


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
    charges = _charges(view, parts, explanation, thresholds.slow_fraction)
    weak = _weak(view, parts, explanation, charges, thresholds.slow_fraction)
    charged = [one for charge in charges for one in (charge.entity, *charge.rivals)]
    doubted = charged + [entity for entity, nats in weak if nats > WEAK]
    healthy = top >= floor
    healthy[[one.first for one in doubted if one.kind == NODE]] = False
    known = {one.first for one in charged if one.kind == NODE}
    unproven = tuple(at for at in np.flatnonzero(top < floor).tolist() if at not in known)
    return Analysis(view, parts, explanation, charges, weak, healthy, common, unproven)


def _disturbed(seen: Observations, parts: Components, explanation: Explanation) -> Observations:
    """What interference leaves of the measurements; the same object where there is none."""
    wide = {
        fault.component: fault.capacity
        for fault in explanation.faults
        if not parts.is_link(fault.component)
    }
    if not len(seen.ratio):
        return seen
    capacity = path_capacity(wide, parts, len(seen.ratio))
    noise = path_noise(wide, seen, parts)
    found = with_interference(seen, capacity, noise, explanation.capacity >= 1.0)
    return found if found.noise > seen.noise or found.hiccups is not seen.hiccups else seen


def _across(apart: Observations) -> float:
    crosses = apart.crosses
    if crosses.all() or not crosses.any():
        return 1.0
    return float(np.median(apart.expected[crosses]) / np.median(apart.expected[~crosses]))


def _only_accused(seen: Observations) -> Observations:
    keep = seen.accused >= 0
    return Observations(
        nodes=seen.nodes,
        source=seen.source[keep],
        target=seen.target[keep],
        round=seen.round[keep],
        ratio=seen.ratio[keep],
        accused=seen.accused[keep],
        expected=seen.expected[keep],
        group=seen.group,
        group_names=seen.group_names,
        noise=seen.noise,
        weight=seen.weight[keep],
        hiccups=seen.hiccups,
    )


def _charges(
    seen: Observations, parts: Components, explanation: Explanation, slow_fraction: float
) -> tuple[Charge, ...]:
    active = {fault.component: fault.capacity for fault in explanation.faults}
    by_entity: dict[Entity, list[Fault]] = {}
    for fault in explanation.faults:
        by_entity.setdefault(parts.entity(fault.component), []).append(fault)
    charges = []
    for entity, faults in by_entity.items():
        margin, rivals = float("inf"), set()
        edges = np.unique(np.concatenate([parts.edges_of(one.component) for one in faults]))
        for fault in faults:
            own = fault.nats - fault.price
            margin = min(margin, own)
            for rival, worth in _rivals(
                fault, entity, active, seen, parts, explanation, slow_fraction
            ):
                margin = min(margin, own - worth)
                if own - worth < MARGIN:
                    rivals.add(rival)
        slow = edges[explanation.capacity[edges] < 1.0]
        ends = set(seen.source[slow].tolist()) | set(seen.target[slow].tolist())
        charges.append(
            Charge(
                entity,
                tuple(faults),
                margin,
                tuple(sorted(rivals)),
                len(np.unique(seen.round[slow])),
                len(ends - {entity.first}),
            )
        )
    return tuple(sorted(charges, key=lambda charge: (-charge.margin, charge.entity)))


def _rivals(
    fault: Fault,
    entity: Entity,
    active: dict[int, float],
    seen: Observations,
    parts: Components,
    explanation: Explanation,
    slow_fraction: float,
) -> list[tuple[Entity, float]]:
    """Others that would explain the edges of a fault in its place, with their worth in nats."""
    some = explanation.candidates
    without = path_capacity(active, parts, len(seen.ratio), without=fault.component)
    mine = np.zeros(len(seen.ratio), dtype=bool)
    mine[parts.edges_of(fault.component)] = True
    noise = path_noise(active, seen, parts, without=fault.component)
    _, gains = best_faults(some, seen, without, noise, slow_fraction)
    touching = np.unique(some.owner[mine[some.edge]])
    found = []
    for at in touching.tolist():
        component = int(some.component[at])
        other = parts.entity(component)
        worth = float(gains[at]) - price_of(parts, component)
        if other != entity and component not in active:
            found.append((other, worth))
    return found


def _weak(
    seen: Observations,
    parts: Components,
    explanation: Explanation,
    charges: tuple[Charge, ...],
    slow_fraction: float,
) -> tuple[tuple[Entity, float], ...]:
    some = explanation.candidates
    left, gains = best_faults(some, seen, explanation.capacity, explanation.noise, slow_fraction)
    charged = {charge.entity for charge in charges}
    best: dict[Entity, float] = {}
    doubtful = gains > np.where(some.single, FAINT, WEAK)
    for at in np.flatnonzero(doubtful & (left <= 1.0 - slow_fraction)).tolist():
        entity = parts.entity(int(some.component[at]))
        if entity not in charged:
            best[entity] = max(best.get(entity, 0.0), float(gains[at]))
    return tuple(sorted(best.items(), key=lambda item: (-item[1], item[0])))
