"""Robust statistics: the speed of the healthy part of a fleet, and its noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PRIOR_NOISE = 0.05
PRIOR_WEIGHT = 6.0
MIN_NOISE = 0.01
# Bottlenecks that drop packets were seen to scatter by 4 to 8 %, few of them and none more evenly.
SCATTER_PRIOR = 0.1
SAME_LEVEL = 0.15
_MAD_TO_SIGMA = 1.4826
# A quarter of normal noise lies below minus this many sigma.
_QUARTILE = 0.6745


def healthy_level(values: Floats) -> float:
    """The speed of the healthy part of a fleet.

    Faults only ever slow an edge, and one bad node slows every edge it takes part in, so in a
    small fleet most edges may be slow while most nodes are healthy. The plain median would then
    take the fault for the norm. This starts at the fast end and moves to the nearest mode instead:
    it takes the median of a window around the current estimate until that no longer changes.

    Args:
        values: positive measurements, any order, any unit; at least one.
    """
    logs = np.sort(np.log(values))
    middle = float(np.median(logs))
    spread = float(np.median(np.abs(logs - middle))) * _MAD_TO_SIGMA
    window = 2.5 * min(max(spread, 0.03), 0.08)
    guess = float(np.quantile(logs, 0.9, method="higher"))
    for _ in range(50):
        first, last = np.searchsorted(logs, (guess - window, guess + window))
        moved = float(np.median(logs[first:last]))
        if abs(moved - guess) < 1e-9:
            break
        guess = moved
    return float(np.exp(guess))


def noise_level(ratios: Floats) -> float:
    """Relative noise (sigma) of edges given as shares of the healthy level.

    Only the half above the level is looked at: the half below holds the faults. A few values
    prove little, so the estimate is combined with a prior of 5 % worth six measurements, and is
    raised by its own standard error and by that of the healthy level: an estimate that is too low
    would accuse healthy nodes, one that is too high costs one more round.
    """
    # Edges above the window are fast for another reason, e.g. both ends are on one host.
    above = ratios[(ratios > 1.0) & (ratios < 1.5)] - 1.0
    count = len(above)
    if count:
        rough = float(np.median(above)) * _MAD_TO_SIGMA
        above = np.minimum(above, 3.0 * rough)
    total = float(np.sum(above**2)) + PRIOR_WEIGHT * PRIOR_NOISE**2
    variance = total / (count + PRIOR_WEIGHT)
    near = max(1, int(np.count_nonzero(np.abs(ratios - 1.0) < 0.15)))
    standard_error = 1.0 / np.sqrt(2.0 * (count + PRIOR_WEIGHT))
    return max(MIN_NOISE, float(np.sqrt(variance * (1.0 + 2.0 / near)) * (1.0 + standard_error)))


def downward_noise(shares: Floats, way: NDArray[np.int64]) -> float:
    """Relative sigma, from the measurements below what is expected once faults are accounted for.

    Args:
        shares: of what is expected, measurements without a known fault.
        way: number of the directed pair of each; a pair that was measured often counts once.
    """
    _, place = np.unique(way, return_inverse=True)
    means = np.bincount(place, weights=shares) / np.bincount(place)
    if len(means) < PRIOR_WEIGHT:
        return 0.0
    return max(0.0, (1.0 - float(np.quantile(means, 0.25))) / _QUARTILE)


def scatter(shares: Floats) -> float:
    """Relative sigma of the measurements through one slow component in one direction.

    Args:
        shares: of the component's capacity, one for each directed pair; at least one.

    Returns:
        Values above and below the median both count, because the component's own fault explains
        the slow ones already; single outliers (a link with a fault of its own) do not. With few
        values the estimate stays close to 10 %.
    """
    middle = float(np.median(shares))
    # This direction has an additional fault; only the spread around its own level is scatter.
    off = shares / middle - 1.0 if abs(middle - 1.0) > SAME_LEVEL else shares - 1.0
    rough = max(float(np.median(np.abs(off))) * _MAD_TO_SIGMA, MIN_NOISE)
    total = float(np.sum(np.minimum(np.abs(off), 3.0 * rough) ** 2))
    total += PRIOR_WEIGHT * SCATTER_PRIOR**2
    return float(np.sqrt(total / (len(off) + PRIOR_WEIGHT)))
