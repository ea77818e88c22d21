"""The smallest loss that a check could still have found, given its transient slowdowns."""

from __future__ import annotations

import numpy as np

from relkit.netcheck.model import Interference
from relkit.netcheck.solve.analyse import Analysis
from relkit.netcheck.solve.confirm import LINK_TRIES
from relkit.netcheck.solve.explain import ONE_WAY_EXTRA, PRICE
from relkit.netcheck.solve.likelihood import fault_ceiling, misfit
from relkit.netcheck.solve.observations import Ints, Observations
from relkit.netcheck.solve.robust import Floats

# Below these a fleet counts as quiet: a few repeats and chance could have produced the rest.
_MIN_RATE = 0.01
_MIN_TAKEN_BACK = 3
# Noise above this hides mild losses by itself. With fewer measurements its estimate is less
# certain (with 24 the bound is 12 %), and with too few it proves nothing.
_QUIET_NOISE = 0.08
_UNCERTAINTY = 0.2
_MIN_MEASUREMENTS = 24
_STEP = 0.01
# Three in four of the links that looked equally slow had at least this many measurements.
_UNLUCKY = 0.25
# As in transient_slowdown.py: noise alone falls this far in three of a hundred thousand cases.
_FAR = 4.0


def detection_limits(analysis: Analysis, slow_fraction: float) -> Interference | None:
    """The rate of transient slowdowns, and the smallest losses that they could not have hidden.

    The limits are those of a fault in one direction only, which is the hardest to find. None on a
    quiet fleet.

    Args:
        analysis: of all measurements of the check.
        slow_fraction: as in Thresholds.
    """
    seen, transients = analysis.seen, analysis.seen.transients
    rare = transients.rate < _MIN_RATE or transients.taken_back < _MIN_TAKEN_BACK
    count = len(seen.ratio)
    noise_bound = _QUIET_NOISE + _UNCERTAINTY / max(count, 1) ** 0.5
    scattered = count >= _MIN_MEASUREMENTS and seen.noise > noise_bound
    # Where the whole fleet is slow nobody is singled out, and the report already says so.
    if analysis.common or (rare and not scattered):
        return None
    shares = 1.0 - np.arange(slow_fraction + _STEP, 1.0, _STEP)
    gain = _gain(seen, shares, slow_fraction)
    return Interference(
        rate=transients.rate,
        repeated=transients.repeated,
        taken_back=transients.taken_back,
        noise=seen.noise,
        link_loss=_smallest_loss(shares, gain * _link_tries(analysis, shares)),
        node_loss=_smallest_loss(shares, gain * len(np.unique(seen.round))),
    )


def _gain(seen: Observations, shares: Floats, slow_fraction: float) -> Floats:
    """By how much one measurement at each share raises the log-likelihood of a fault."""
    noise = np.full(len(shares), seen.noise)
    weight = np.ones(len(shares))
    supposed = np.minimum(shares, fault_ceiling(slow_fraction, noise))
    healthy = misfit(shares, np.ones(len(shares)), noise, seen.transients, weight)
    return healthy - misfit(shares, supposed, noise, seen.transients, weight)


def _smallest_loss(shares: Floats, gain: Floats) -> float:
    """The smallest loss from which every larger one is diagnosed too; 1 if there is none."""
    hidden = np.flatnonzero(gain <= PRICE + ONE_WAY_EXTRA)
    first = int(hidden[-1]) + 1 if len(hidden) else 0
    return round(1.0 - float(shares[first]), 4) if first < len(shares) else 1.0


def _link_tries(analysis: Analysis, shares: Floats) -> Ints:
    """How often a link that looks this slow at first is measured in all, if it stays that slow.

    The rounds after the round robin are shared by everything that is in doubt, and a node has one
    partner in each of them. The number is therefore read from the links that did look so slow.
    """
    first_ratio, tries = _repeated_links(analysis)
    if not len(first_ratio):
        return np.full(len(shares), LINK_TRIES)
    noise = analysis.seen.noise
    typical = [
        np.quantile(tries[alike], _UNLUCKY, method="lower")
        if (alike := first_ratio <= share + noise).any()
        else tries.max()
        for share in shares.tolist()
    ]
    return np.array(typical, dtype=np.int64)


def _repeated_links(analysis: Analysis) -> tuple[Floats, Ints]:
    """Links that looked slow at first without a fault: the first ratio, and possible tries."""
    seen = analysis.seen
    healthy = analysis.explanation.capacity >= 1.0
    low, high = np.minimum(seen.source, seen.target), np.maximum(seen.source, seen.target)
    pair = low * len(seen.nodes) + high
    last = int(seen.round.max(initial=0))
    ratios, tries = [], []
    order = np.lexsort((seen.round, pair))
    for own in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        first = own[seen.round[own] == seen.round[own[0]]]
        slowest = float(seen.ratio[first].min())
        if slowest <= 0.0 or slowest >= 1.0 - _FAR * seen.noise or not healthy[first].all():
            continue
        later = seen.round[own[len(first) :]]
        ratios.append(slowest)
        tries.append(min(LINK_TRIES, 2 + last - int(later[0])) if len(later) else 1)
    return np.array(ratios), np.array(tries, dtype=np.int64)
