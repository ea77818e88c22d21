"""How badly a capacity fits measurements, and what a fault of one component would explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.netcheck.solve.components import Components
from relkit.netcheck.solve.observations import (
    MOST_PER_EDGE,
    NO_HICCUPS,
    Hiccups,
    Ints,
    Observations,
)
from relkit.netcheck.solve.robust import Floats

LEAST_CAPACITY = 0.1
CLUSTER = 4.0
# The median replaces the upper cluster as capacity only where it explains this much more.
LUCK = 3.0

Noise = float | Floats
"""Relative sigma: one for all measurements, or one for each."""


def misfit(
    ratio: Floats,
    capacity: Floats,
    noise: Noise,
    hiccups: Hiccups = NO_HICCUPS,
    weight: Floats | None = None,
) -> Floats:
    """Negative log-likelihood, in nats, of measurements given the capacity of their path.

    Noise is multiplicative: its size is `noise` times the capacity. Faster than healthy costs
    nothing, because no fault explains it.

    Args:
        hiccups, weight: see Observations; they bound the cost of what is slower than its path.
    """
    off = np.where((ratio > 1.0) & (capacity >= 1.0), 0.0, ratio - capacity)
    scale = noise * np.maximum(capacity, LEAST_CAPACITY)
    cost = np.minimum(0.5 * (off / scale) ** 2, MOST_PER_EDGE)
    if weight is None or not len(hiccups.depths):
        return cost
    most = hiccups.most(ratio / np.maximum(capacity, LEAST_CAPACITY), weight)
    return np.where(off < 0.0, np.minimum(cost, most), cost)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Some components, with the measurements that pass through them, ready for whole-array work.

    Args:
        component: their numbers, ascending.
        edge, owner: one row a passage; owner is a place in `component`.
        start: first row of each.
        single: which of them are links.
    """

    component: Ints
    edge: Ints
    owner: Ints
    start: Ints
    single: NDArray[np.bool_]


def choose(parts: Components, wanted: Ints) -> Candidates:
    """The candidates among all components; each must have a measurement."""
    sizes = parts.start[wanted + 1] - parts.start[wanted]
    owner = np.repeat(np.arange(len(wanted)), sizes)
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    rows = np.arange(int(sizes.sum())) - start[owner] + parts.start[wanted][owner]
    single = wanted >= 3 * (parts.nodes + parts.groups)
    return Candidates(wanted, parts.edge[rows], owner, start, single)


def fault_ceiling(slow_fraction: float, noise: Noise) -> Noise:
    """The mildest fault that measurements are held against.

    It lies below 1 - slow_fraction by up to one sigma, so that a healthy component cannot drift
    into a conviction at the very edge when noisy measurements are repeated again and again.
    """
    return 1.0 - np.minimum(2.0 * slow_fraction, slow_fraction + noise)


def possible_culprits(
    parts: Components, of: Observations, slow_fraction: float, least: float
) -> Candidates:
    """The components that could gain `least` nats by some fault, others being healthy.

    An upper bound, summed over each component's edges, saves the closer look at most of them.
    """
    ratio, noise = of.ratio, of.noise
    ceiling = np.full(len(ratio), fault_ceiling(slow_fraction, noise))
    nearest = np.minimum(ceiling, ratio)
    healthy = misfit(ratio, np.ones(len(ratio)), noise, of.hiccups, of.weight)
    most = np.maximum(healthy - misfit(ratio, nearest, noise, of.hiccups, of.weight), 0.0)
    total = np.bincount(parts.component, weights=most[parts.edge], minlength=parts.count())
    return choose(parts, np.flatnonzero(total > least))


def best_faults(
    some: Candidates, of: Observations, capacity: Floats, noise: Floats, slow_fraction: float
) -> tuple[Floats, Floats]:
    """For each candidate, the capacity that explains its edges best and the nats that it gains.

    Args:
        of: all measurements; capacity: of each one's path, by the faults known so far; noise:
            of each measurement.
        slow_fraction: a fault explains only edges that it slows by more than this on top of
            what is known; less is the unevenness of every fleet.

    Returns:
        (capacities, gains). A component can be no slower than the best that went through it, so
        its capacity is the mean of the upper cluster of its edges; the median is tried as well,
        so that one lucky measurement does not acquit a node. It does acquit a link: what else
        goes on in its hosts lowers a measurement now and then, and never raises one. Edges that
        are explained already say nothing about the capacity, only against one below them.
    """
    seen, now = of.ratio[some.edge], capacity[some.edge]
    noise, weight = noise[some.edge], of.weight[some.edge]
    scale = noise * np.maximum(now, LEAST_CAPACITY)
    ceiling = fault_ceiling(slow_fraction, noise)
    free = (now > 0.95) | (np.abs(seen - now) > 3.0 * scale)
    gains = np.full(len(some.component), -np.inf)
    chosen = np.ones(len(some.component))
    if not len(some.edge):
        return chosen, gains
    before = misfit(seen, now, noise, of.hiccups, weight)
    top = _upper_cluster(some, seen, free, noise)
    for guess in (top, np.where(some.single, top, _median(some, seen, free))):
        slowed = guess[some.owner]
        supposed = np.minimum(slowed, ceiling * now)
        material = slowed <= (1.0 - slow_fraction) * now
        after = misfit(seen, np.where(material, supposed, now), noise, of.hiccups, weight)
        gain = np.add.reduceat(before - after, some.start)
        better = gain > gains + LUCK
        gains, chosen = np.where(better, gain, gains), np.where(better, guess, chosen)
    return chosen, gains


def _upper_cluster(
    some: Candidates, seen: Floats, free: NDArray[np.bool_], noise: Floats
) -> Floats:
    top = np.maximum.reduceat(np.where(free, seen, -1.0), some.start)[some.owner]
    inside = free & (seen >= top - CLUSTER * noise * np.maximum(top, LEAST_CAPACITY))
    count = np.add.reduceat(inside.astype(np.float64), some.start)
    total = np.add.reduceat(np.where(inside, seen, 0.0), some.start)
    return np.where(count > 0, total / np.maximum(count, 1.0), 1.0)


def _median(some: Candidates, seen: Floats, free: NDArray[np.bool_]) -> Floats:
    # Rows that are not free sort behind the others of their owner.
    order = np.lexsort((np.where(free, seen, np.inf), some.owner))
    count = np.add.reduceat(free.astype(np.int64), some.start)
    middle = order[some.start + np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, seen[middle], 1.0)
