"""How badly a capacity fits measurements, and what a fault of one component would explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.netcheck.solve.components import Components
from relkit.netcheck.solve.observations import (
    MAX_PER_EDGE,
    NO_TRANSIENT_SLOWDOWNS,
    Ints,
    Observations,
    TransientSlowdowns,
)
from relkit.netcheck.solve.robust import Floats

MIN_CAPACITY = 0.1
CLUSTER = 4.0
# The median replaces the upper cluster as capacity only where it explains this much more.
LUCK = 3.0

Noise = float | Floats
"""Relative sigma: one for all measurements, or one for each."""


def misfit(
    ratio: Floats,
    capacity: Floats,
    noise: Noise,
    transients: TransientSlowdowns = NO_TRANSIENT_SLOWDOWNS,
    weight: Floats | None = None,
) -> Floats:
    """Negative log-likelihood (natural logarithm) of measurements, given their path's capacity.

    Noise is multiplicative: its size is `noise` times the capacity. A measurement above the
    healthy level costs nothing, because no fault explains it.

    Args:
        transients, weight: see Observations; they bound the cost of a slow measurement.
    """
    off = np.where((ratio > 1.0) & (capacity >= 1.0), 0.0, ratio - capacity)
    scale = noise * np.maximum(capacity, MIN_CAPACITY)
    cost = np.minimum(0.5 * (off / scale) ** 2, MAX_PER_EDGE)
    if weight is None or not len(transients.depths):
        return cost
    bound = transients.bound(ratio / np.maximum(capacity, MIN_CAPACITY), weight)
    return np.where(off < 0.0, np.minimum(cost, bound), cost)


@dataclass(frozen=True, slots=True)
class ComponentSubset:
    """Some components and the measurements that pass through them, as flat arrays.

    Args:
        component: their numbers, ascending.
        edge, owner: one row for each measurement of each component; owner is an index into
            `component`.
        start: first row of each.
        is_link: which of them are links.
    """

    component: Ints
    edge: Ints
    owner: Ints
    start: Ints
    is_link: NDArray[np.bool_]


def subset_of(parts: Components, wanted: Ints) -> ComponentSubset:
    """Some of all components; each must have a measurement."""
    sizes = parts.start[wanted + 1] - parts.start[wanted]
    owner = np.repeat(np.arange(len(wanted)), sizes)
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    rows = np.arange(int(sizes.sum())) - start[owner] + parts.start[wanted][owner]
    is_link = wanted >= 3 * (parts.nodes + parts.groups)
    return ComponentSubset(wanted, parts.edge[rows], owner, start, is_link)


def fault_ceiling(slow_fraction: float, noise: Noise) -> Noise:
    """The capacity of the mildest fault that is considered.

    It lies up to one sigma below 1 - slow_fraction, so that a healthy component cannot drift into
    a diagnosis at the very edge when noisy measurements are repeated many times.
    """
    return 1.0 - np.minimum(2.0 * slow_fraction, slow_fraction + noise)


def possible_faults(
    parts: Components, of: Observations, slow_fraction: float, min_gain: float
) -> ComponentSubset:
    """The components for which some fault could gain `min_gain`, all others being healthy.

    This is an upper bound, summed over each component's edges; it rules out most components
    cheaply.
    """
    ratio, noise = of.ratio, of.noise
    ceiling = np.full(len(ratio), fault_ceiling(slow_fraction, noise))
    nearest = np.minimum(ceiling, ratio)
    healthy = misfit(ratio, np.ones(len(ratio)), noise, of.transients, of.weight)
    bound = np.maximum(healthy - misfit(ratio, nearest, noise, of.transients, of.weight), 0.0)
    total = np.bincount(parts.component, weights=bound[parts.edge], minlength=parts.count())
    return subset_of(parts, np.flatnonzero(total > min_gain))


def best_faults(
    subset: ComponentSubset, of: Observations, capacity: Floats, noise: Floats, slow_fraction: float
) -> tuple[Floats, Floats]:
    """For each component, the capacity that explains its edges best, and what that gains.

    Args:
        of: all measurements.
        capacity: of each measurement's path, from the faults known so far.
        noise: of each measurement.
        slow_fraction: a fault explains only edges that it slows by more than this on top of what
            is known; a smaller difference is the ordinary unevenness of a fleet.

    Returns:
        (capacities, gains in log-likelihood). A component is at least as fast as the best
        measurement that passed through it, so its capacity is the mean of the upper cluster of
        its edges. For nodes and uplinks the median is tried as well, so that one lucky
        measurement does not clear them. A link is cleared by one: other activity on its hosts
        slows a measurement now and then, and never makes one faster. Edges that are explained
        already do not determine the capacity; they only rule out a lower one.
    """
    seen, now = of.ratio[subset.edge], capacity[subset.edge]
    noise, weight = noise[subset.edge], of.weight[subset.edge]
    scale = noise * np.maximum(now, MIN_CAPACITY)
    ceiling = fault_ceiling(slow_fraction, noise)
    free = (now > 0.95) | (np.abs(seen - now) > 3.0 * scale)
    gains = np.full(len(subset.component), -np.inf)
    chosen = np.ones(len(subset.component))
    if not len(subset.edge):
        return chosen, gains
    before = misfit(seen, now, noise, of.transients, weight)
    top = _upper_cluster(subset, seen, free, noise)
    for guess in (top, np.where(subset.is_link, top, _median(subset, seen, free))):
        slowed = guess[subset.owner]
        supposed = np.minimum(slowed, ceiling * now)
        material = slowed <= (1.0 - slow_fraction) * now
        after = misfit(seen, np.where(material, supposed, now), noise, of.transients, weight)
        gain = np.add.reduceat(before - after, subset.start)
        better = gain > gains + LUCK
        gains, chosen = np.where(better, gain, gains), np.where(better, guess, chosen)
    return chosen, gains


def _upper_cluster(
    subset: ComponentSubset, seen: Floats, free: NDArray[np.bool_], noise: Floats
) -> Floats:
    top = np.maximum.reduceat(np.where(free, seen, -1.0), subset.start)[subset.owner]
    inside = free & (seen >= top - CLUSTER * noise * np.maximum(top, MIN_CAPACITY))
    count = np.add.reduceat(inside.astype(np.float64), subset.start)
    total = np.add.reduceat(np.where(inside, seen, 0.0), subset.start)
    return np.where(count > 0, total / np.maximum(count, 1.0), 1.0)


def _median(subset: ComponentSubset, seen: Floats, free: NDArray[np.bool_]) -> Floats:
    # Rows that are not free sort behind the others of their owner.
    order = np.lexsort((np.where(free, seen, np.inf), subset.owner))
    count = np.add.reduceat(free.astype(np.int64), subset.start)
    middle = order[subset.start + np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, seen[middle], 1.0)
