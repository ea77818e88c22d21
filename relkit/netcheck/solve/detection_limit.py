"""How small a loss could still have been convicted, given how often hiccups slowed measurements."""

from __future__ import annotations

import numpy as np

from relkit.netcheck.model import Interference
from relkit.netcheck.solve.analyse import Analysis
from relkit.netcheck.solve.confirm import LINK_TRIES
from relkit.netcheck.solve.explain import ONE_WAY_EXTRA, PRICE
from relkit.netcheck.solve.likelihood import fault_ceiling, misfit
from relkit.netcheck.solve.observations import Ints, Observations
from relkit.netcheck.solve.robust import Floats

# Below this a fleet counts as calm: a few repeats and chance could have made it.
_LEAST_RATE = 0.01
_LEAST_TAKEN_BACK = 3
# Scatter that hides mild losses by itself; with fewer measurements its estimate is less certain
# (at 24 the bound is 12 %), and with too few it says nothing of a fleet that may well be calm.
_CALM_NOISE = 0.08
_UNCERTAINTY = 0.2
_ENOUGH = 24
_STEP = 0.01
# Of the links that looked as slow, three of four had as many measurements as this or more.
_UNLUCKY = 0.25
# As in interference.py: noise as such comes so far below in three of a hundred thousand cases.
_FAR = 4.0


def what_hiccups_hide(found: Analysis, slow_fraction: float) -> Interference | None:
    """The rate of hiccups and the smallest losses that they would not have hidden.

    A fault that slows one direction only is taken, the one that is hardest to see. None on a calm
    fleet.

    Args:
        found: of all measurements of the check. slow_fraction: as in Thresholds.
    """
    seen, hiccups = found.seen, found.seen.hiccups
    rare = hiccups.rate < _LEAST_RATE or hiccups.taken_back < _LEAST_TAKEN_BACK
    count = len(seen.ratio)
    scattered = count >= _ENOUGH and seen.noise > _CALM_NOISE + _UNCERTAINTY / count**0.5
    # Where the whole fleet is slow nobody is singled out, and the report says so already.
    if found.common or (rare and not scattered):
        return None
    shares = 1.0 - np.arange(slow_fraction + _STEP, 1.0, _STEP)
    nats = _nats(seen, shares, slow_fraction)
    links = _smallest(shares, nats * _link_tries(found, shares))
    nodes = _smallest(shares, nats * len(np.unique(seen.round)))
    return Interference(
        hiccups.rate, hiccups.repeated, hiccups.taken_back, seen.noise, links, nodes
    )


def _nats(seen: Observations, shares: Floats, slow_fraction: float) -> Floats:
    """What one measurement at each share is worth as evidence of a fault."""
    noise = np.full(len(shares), seen.noise)
    weight = np.ones(len(shares))
    supposed = np.minimum(shares, fault_ceiling(slow_fraction, noise))
    healthy = misfit(shares, np.ones(len(shares)), noise, seen.hiccups, weight)
    return healthy - misfit(shares, supposed, noise, seen.hiccups, weight)


def _smallest(shares: Floats, nats: Floats) -> float:
    """The least loss from which on every loss is worth a conviction; 1 where none is."""
    hidden = np.flatnonzero(nats <= PRICE + ONE_WAY_EXTRA)
    first = int(hidden[-1]) + 1 if len(hidden) else 0
    return round(1.0 - float(shares[first]), 4) if first < len(shares) else 1.0


def _link_tries(found: Analysis, shares: Floats) -> Ints:
    """How often a link that looks this slow at first is measured in all, when it goes on so.

    The rounds after the tournament are shared by all that is in doubt, and a node has one partner
    in each of them: told by when the links that did look so slow were repeated.
    """
    seen = found.seen
    healthy = found.explanation.capacity >= 1.0
    low, high = np.minimum(seen.source, seen.target), np.maximum(seen.source, seen.target)
    pair = low * len(seen.nodes) + high
    last = int(seen.round.max(initial=0))
    depth, tries = [], []
    order = np.lexsort((seen.round, pair))
    for own in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        first = own[seen.round[own] == seen.round[own[0]]]
        least = float(seen.ratio[first].min())
        if least <= 0.0 or least >= 1.0 - _FAR * seen.noise or not healthy[first].all():
            continue
        later = seen.round[own[len(first) :]]
        depth.append(least)
        tries.append(min(LINK_TRIES, 2 + last - int(later[0])) if len(later) else 1)
    if not depth:
        return np.full(len(shares), LINK_TRIES)
    deep, often = np.array(depth), np.array(tries)
    found_tries = [
        np.quantile(often[alike], _UNLUCKY, method="lower")
        if (alike := deep <= share + seen.noise).any()
        else often.max()
        for share in shares.tolist()
    ]
    return np.array(found_tries, dtype=np.int64)
