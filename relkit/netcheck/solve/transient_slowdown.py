"""How often a measurement was slowed by something else than a fault, judged by repetitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relkit.netcheck.solve.observations import (
    MAX_PER_EDGE,
    Flags,
    Ints,
    Observations,
    TransientSlowdowns,
)
from relkit.netcheck.solve.robust import Floats, downward_noise

# Noise alone falls this many sigma below in three of a hundred thousand measurements.
_FAR = 4.0
# A repeated measurement within this many sigma of what was expected takes the first one back.
_NEAR = 2.5
# Depths are compared with this much slack.
_SLACK = 1.05


def with_interference(
    seen: Observations, capacity: Floats, noise: Floats, healthy: Flags
) -> Observations:
    """The observations, with noise and weights corrected for interference.

    A busy host, or other traffic, slows a measurement now and then; nothing makes one faster. A
    direction that was slow once, and at full speed when it was measured again, shows how often
    that happens on this fleet, and how deep it goes. A slow measurement of that depth then counts
    for no more than the logarithm of its frequency, and both directions of a pair in one round
    count together, because what disturbs one disturbs the other. Failed measurements keep their
    weight: load does not silence a pair.

    Args:
        capacity: of each measurement's path, from the faults of nodes and uplinks alone.
        noise: relative sigma of each measurement.
        healthy: measurements whose path has no fault at all, links included.
    """
    alive = seen.ratio > 0.0
    share = seen.ratio / np.maximum(capacity, 1e-9)
    way = seen.source * len(seen.nodes) + seen.target
    below = downward_noise(share[alive & healthy], way[alive & healthy])
    noise = np.maximum(noise, below)
    first, again = _first_and_best_later(way, seen.round, share)
    slow = alive & (share < 1.0 - _FAR * noise)
    repeated = slow & first & (again >= 0.0)
    if not repeated.any():
        return replace(seen, noise=max(seen.noise, below))
    taken_back = repeated & (again > 1.0 - _NEAR * noise)
    if not taken_back.any():
        return replace(seen, noise=max(seen.noise, below))
    transients = _transients(
        share, repeated, taken_back, slow & first & ~repeated, int(np.count_nonzero(first & alive))
    )
    # What slows one direction of a pair may slow the other in the same round: as often as seen.
    shared = np.count_nonzero(taken_back & _back_is_slow(seen, slow)) / transients.taken_back
    low = alive & (seen.ratio < 1.0 - _FAR * noise)
    weight = np.where(_back_is_slow(seen, low) & low, 1.0 - 0.5 * shared, 1.0)
    return replace(seen, noise=max(seen.noise, below), weight=weight, transients=transients)


def _transients(
    share: Floats, repeated: Flags, taken_back: Flags, unrepeated: Flags, first_count: int
) -> TransientSlowdowns:
    """Frequency and depth of the transient slowdowns.

    Args:
        share: of what is expected, each measurement.
        repeated: slow first measurements that were repeated; taken_back: at full speed then.
        unrepeated: slow first measurements that were not repeated.
        first_count: number of first measurements that did not fail.
    """
    counts = taken_back | unrepeated
    order = np.argsort(share[counts])
    transient_share = float(np.count_nonzero(taken_back)) / float(np.count_nonzero(repeated))
    # Slow measurements that were not repeated: the same share of them counts as transient.
    each = np.where(taken_back[counts][order], 1.0, transient_share)
    frequency = np.concatenate([[0.0], np.cumsum(each)]) / first_count
    return TransientSlowdowns(
        depths=share[counts][order] / _SLACK,
        max_gain=-np.log(np.clip(frequency, np.exp(-MAX_PER_EDGE), 1.0)),
        rate=float(frequency[-1]),
        repeated=int(np.count_nonzero(repeated)),
        taken_back=int(np.count_nonzero(taken_back)),
    )


def _first_and_best_later(way: Ints, rounds: Ints, share: Floats) -> tuple[Flags, Floats]:
    """Which measurements are the first of their direction; the best of the later ones, or -1."""
    order = np.lexsort((rounds, way))
    starts = np.ones(len(way), dtype=bool)
    starts[1:] = way[order][1:] != way[order][:-1]
    first = np.zeros(len(way), dtype=bool)
    first[order] = starts
    group = np.cumsum(starts) - 1
    best = np.full(int(group[-1]) + 1 if len(group) else 0, -1.0)
    later = ~starts
    np.maximum.at(best, group[later], share[order][later])
    again = np.empty(len(way))
    again[order] = best[group]
    return first, again


def _back_is_slow(seen: Observations, slow: Flags) -> Flags:
    """Whether the other direction of the same pair in the same round is slow as well."""
    count, rounds = len(seen.nodes), int(seen.round.max(initial=0)) + 1
    forth = (seen.source * count + seen.target) * rounds + seen.round
    back = (seen.target * count + seen.source) * rounds + seen.round
    return np.isin(back, forth[slow])
