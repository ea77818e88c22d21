"""The fewest faults that explain the measurements: add, refit, take back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.netcheck.solve.components import BOTH, Components
from relkit.netcheck.solve.likelihood import (
    CLUSTER,
    MIN_CAPACITY,
    ComponentSubset,
    best_faults,
    misfit,
    possible_faults,
    subset_of,
)
from relkit.netcheck.solve.observations import Observations
from relkit.netcheck.solve.robust import Floats, scatter

# The gain in log-likelihood that a fault must bring. A healthy component reaches 14 with a chance
# of one in ten million (5.3 sigma), so in a fleet of thousands of nodes and links none is
# diagnosed by chance, not even if this is asked again after every round.
PRICE = 14.0
ONE_WAY_EXTRA = 1.0
# Components that gain less than this at the start never become faults later: other faults only
# take explanations away from them.
WORTH_A_LOOK = 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """One component that is at fault.

    Args:
        component: its number.
        capacity: share of the healthy bandwidth that is left.
        gain: by how much this fault raises the log-likelihood of the measurements.
        price: what the gain had to exceed.
    """

    component: int
    capacity: float
    gain: float
    price: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Faults, and what they leave of each measurement's path.

    Args:
        faults: in order of component number.
        capacity: of each measurement's path, 1 where healthy.
        noise: relative sigma of each measurement, see path_noise.
        suspects: the components that were examined.
    """

    faults: tuple[Fault, ...]
    capacity: Floats
    noise: Floats
    suspects: ComponentSubset


def price_of(parts: Components, component: int) -> float:
    """The gain that a fault of this component must bring; one-way faults are less likely."""
    return PRICE + (0.0 if parts.way(component) == BOTH else ONE_WAY_EXTRA)


def explain(seen: Observations, parts: Components, slow_fraction: float) -> Explanation:
    """Find the faults.

    Args:
        slow_fraction: a component that keeps more than 1 - slow_fraction is not at fault.
    """
    healthy = np.ones(len(seen.ratio))
    every = possible_faults(parts, seen, slow_fraction, WORTH_A_LOOK)
    even = np.full(len(seen.ratio), seen.noise)
    _, gains = best_faults(every, seen, healthy, even, slow_fraction)
    suspects = subset_of(parts, every.component[gains > WORTH_A_LOOK])
    active: dict[int, float] = {}
    for _ in range(4):
        before = set(active)
        _add(active, seen, parts, suspects, slow_fraction)
        _refit(active, seen, parts)
        _take_back(active, seen, parts, slow_fraction)
        if set(active) == before:
            break
    capacity = path_capacity(active, parts, len(seen.ratio))
    faults = [
        Fault(number, active[number], _gain(number, active, seen, parts), price_of(parts, number))
        for number in sorted(active)
    ]
    return Explanation(tuple(faults), capacity, path_noise(active, seen, parts), suspects)


def path_capacity(
    active: dict[int, float], parts: Components, edges: int, *, without: int = -1
) -> Floats:
    """The lowest capacity on each measurement's path, leaving one component out if asked."""
    capacity = np.ones(edges)
    for component, left in active.items():
        if component != without:
            through = parts.edges_of(component)
            capacity[through] = np.minimum(capacity[through], left)
    return capacity


def path_noise(
    active: dict[int, float], seen: Observations, parts: Components, *, without: int = -1
) -> Floats:
    """Relative sigma of each measurement, given the faults, leaving one component out if asked.

    Measurements through a faulty node or uplink scatter more than the rest of the fleet: TCP
    through a queue that drops packets is less even than TCP on an idle wire. They get the scatter
    that the measurements of that component show among themselves, so a link of a slow node is
    diagnosed only if it stands out from the node's other links.
    """
    noise = np.full(len(seen.ratio), seen.noise)
    capacity = path_capacity(active, parts, len(seen.ratio), without=without)
    for component, left in active.items():
        if component == without or left <= 0.0 or parts.is_link(component):
            continue
        through = parts.edges_of(component)
        slowed = through[(capacity[through] >= left) & (seen.ratio[through] > 0.0)]
        away = parts.leaves(component, seen)[slowed]
        for own in (slowed[away], slowed[~away]):
            if len(own):
                pair = seen.source[own] * len(seen.nodes) + seen.target[own]
                _, place = np.unique(pair, return_inverse=True)
                means = np.bincount(place, weights=seen.ratio[own]) / np.bincount(place)
                noise[own] = np.maximum(noise[own], scatter(means / left))
    return noise


def _add(
    active: dict[int, float],
    seen: Observations,
    parts: Components,
    suspects: ComponentSubset,
    slow_fraction: float,
) -> None:
    """Add the fault that explains most, until none is worth its price."""
    capacity = path_capacity(active, parts, len(seen.ratio))
    prices = np.array([price_of(parts, int(number)) for number in suspects.component])
    for _ in range(len(suspects.component)):
        noise = path_noise(active, seen, parts)
        left, gains = best_faults(suspects, seen, capacity, noise, slow_fraction)
        worth = np.where(left <= 1.0 - slow_fraction, gains - prices, -np.inf)
        best = int(np.argmax(worth))
        if worth[best] <= 0.0:
            return
        component = int(suspects.component[best])
        active[component] = min(float(left[best]), active.get(component, 1.0))
        through = parts.edges_of(component)
        capacity[through] = np.minimum(capacity[through], left[best])


def _refit(active: dict[int, float], seen: Observations, parts: Components) -> None:
    """Estimate each capacity again from the edges that no other fault explains."""
    for component, left in list(active.items()):
        others = path_capacity(active, parts, len(seen.ratio), without=component)
        through = parts.edges_of(component)
        ratio = seen.ratio[through]
        reach = CLUSTER * seen.noise * max(left, MIN_CAPACITY)
        own = ratio[(others[through] > left + reach) & (np.abs(ratio - left) < reach)]
        if len(own):
            active[component] = float(np.mean(own))


def _gain(component: int, active: dict[int, float], seen: Observations, parts: Components) -> float:
    through = parts.edges_of(component)
    ratio = seen.ratio[through]
    others = path_capacity(active, parts, len(seen.ratio), without=component)[through]
    noise = path_noise(active, seen, parts, without=component)[through]
    now, weight = np.minimum(others, active[component]), seen.weight[through]
    before = misfit(ratio, others, noise, seen.transients, weight)
    return float(np.sum(before - misfit(ratio, now, noise, seen.transients, weight)))


def _take_back(
    active: dict[int, float], seen: Observations, parts: Components, slow_fraction: float
) -> None:
    """Remove faults that later ones made unnecessary, the least necessary first."""
    while active:
        surplus = {
            number: _gain(number, active, seen, parts) - price_of(parts, number)
            for number in active
        }
        weakest = min(surplus, key=lambda number: (surplus[number], number))
        mild = [number for number in sorted(active) if active[number] > 1.0 - slow_fraction]
        if surplus[weakest] > 0.0 and not mild:
            return
        del active[mild[0] if mild else weakest]
