"""How badly a capacity fits measurements, and what a fault of one component would explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.netcheck.components import Components
from relkit.netcheck.observations import Ints
from relkit.netcheck.robust import Floats

# One measurement is never worth more than this many nats: a single hiccup can raise a
# suspicion but, being less than what a conviction takes, can never convict.
MOST_PER_EDGE = 10.0
LEAST_CAPACITY = 0.1
CLUSTER = 4.0
# The median replaces the upper cluster as capacity only where it explains this much more.
LUCK = 3.0


def misfit(ratio: Floats, capacity: Floats, noise: float) -> Floats:
    """Negative log-likelihood, in nats, of measurements given the capacity of their path.

    Noise is multiplicative: its size is `noise` times the capacity. Faster than healthy costs
    nothing, because no fault explains it.
    """
    off = np.where((ratio > 1.0) & (capacity >= 1.0), 0.0, ratio - capacity)
    scale = noise * np.maximum(capacity, LEAST_CAPACITY)
    return np.minimum(0.5 * (off / scale) ** 2, MOST_PER_EDGE)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Some components, with the measurements that pass through them, ready for whole-array work.

    Args:
        component: their numbers, ascending.
        edge, owner: one row a passage; owner is a place in `component`.
        start: first row of each.
    """

    component: Ints
    edge: Ints
    owner: Ints
    start: Ints


def choose(parts: Components, wanted: Ints) -> Candidates:
    """The candidates among all components; each must have a measurement."""
    sizes = parts.start[wanted + 1] - parts.start[wanted]
    owner = np.repeat(np.arange(len(wanted)), sizes)
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    rows = np.arange(int(sizes.sum())) - start[owner] + parts.start[wanted][owner]
    return Candidates(wanted, parts.edge[rows], owner, start)


def fault_ceiling(slow_fraction: float, noise: float) -> float:
    """The mildest fault that measurements are held against.

    It lies below 1 - slow_fraction by up to one sigma, so that a healthy component cannot drift
    into a conviction at the very edge when noisy measurements are repeated again and again.
    """
    return 1.0 - min(2.0 * slow_fraction, slow_fraction + noise)


def possible_culprits(
    parts: Components, ratio: Floats, noise: float, slow_fraction: float, least: float
) -> Candidates:
    """The components that could gain `least` nats by some fault, others being healthy.

    An upper bound, summed over each component's edges, saves the closer look at most of them.
    """
    ceiling = np.full(len(ratio), fault_ceiling(slow_fraction, noise))
    nearest = np.minimum(ceiling, ratio)
    most = np.maximum(
        misfit(ratio, np.ones(len(ratio)), noise) - misfit(ratio, nearest, noise), 0.0
    )
    total = np.bincount(parts.component, weights=most[parts.edge], minlength=parts.count())
    return choose(parts, np.flatnonzero(total > least))


def best_faults(
    some: Candidates, ratio: Floats, capacity: Floats, noise: float, slow_fraction: float
) -> tuple[Floats, Floats]:
    """For each candidate, the capacity that explains its edges best and the nats that it gains.

    Args:
        ratio: all measurements; capacity: of each one's path, by the faults known so far.
        slow_fraction: a fault explains only edges that it slows by more than this on top of
            what is known; less is the unevenness of every fleet.

    Returns:
        (capacities, gains). A component can be no slower than the best that went through it, so
        its capacity is the mean of the upper cluster of its edges; the median is tried as well,
        so that one lucky measurement does not acquit. Edges that are explained already say
        nothing about the capacity, only against one below them.
    """
    seen, now = ratio[some.edge], capacity[some.edge]
    scale = noise * np.maximum(now, LEAST_CAPACITY)
    ceiling = fault_ceiling(slow_fraction, noise)
    free = (now > 0.95) | (np.abs(seen - now) > 3.0 * scale)
    gains = np.full(len(some.component), -np.inf)
    chosen = np.ones(len(some.component))
    if not len(some.edge):
        return chosen, gains
    before = misfit(seen, now, noise)
    for guess in (_upper_cluster(some, seen, free, noise), _median(some, seen, free)):
        slowed = guess[some.owner]
        supposed = np.minimum(slowed, ceiling * now)
        material = slowed <= (1.0 - slow_fraction) * now
        after = misfit(seen, np.where(material, supposed, now), noise)
        gain = np.add.reduceat(before - after, some.start)
        better = gain > gains + LUCK
        gains, chosen = np.where(better, gain, gains), np.where(better, guess, chosen)
    return chosen, gains


def _upper_cluster(some: Candidates, seen: Floats, free: NDArray[np.bool_], noise: float) -> Floats:
    top = np.maximum.reduceat(np.where(free, seen, -1.0), some.start)
    reach = CLUSTER * noise * np.maximum(top, LEAST_CAPACITY)
    inside = free & (seen >= (top - reach)[some.owner])
    count = np.add.reduceat(inside.astype(np.float64), some.start)
    total = np.add.reduceat(np.where(inside, seen, 0.0), some.start)
    return np.where(count > 0, total / np.maximum(count, 1.0), 1.0)


def _median(some: Candidates, seen: Floats, free: NDArray[np.bool_]) -> Floats:
    # Rows that are not free sort behind the others of their owner.
    order = np.lexsort((np.where(free, seen, np.inf), some.owner))
    count = np.add.reduceat(free.astype(np.int64), some.start)
    middle = order[some.start + np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, seen[middle], 1.0)
