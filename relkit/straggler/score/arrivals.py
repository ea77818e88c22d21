"""Who came late to a collective, and how long the transfer took once everybody was there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import Floats, Ints


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Collectives of one group, all times on one clock.

    Args:
        lateness_s: (collectives, ranks): start after the median start of the group.
        last: of each collective the place of the rank that came last.
        transfer_s: (collectives,): from the last arrival to the median end.
        exit_s: (collectives, ranks): end after the median end: where a ring is slow, the one
            behind the slow edge leaves last and the one before it first.
    """

    lateness_s: Floats
    last: Ints
    transfer_s: Floats
    exit_s: Floats


def arrivals(starts_s: Floats, ends_s: Floats, offset_s: Floats) -> Arrivals:
    """Lateness and transfer of collectives; a late rank has the shortest time inside.

    Args:
        starts_s, ends_s: (collectives, ranks), each on its rank's own clock.
        offset_s: of each rank's clock, as ClockOffsets gives it for its host.
    """
    starts = starts_s - offset_s
    ends = ends_s - offset_s
    last = np.argmax(starts, axis=1)
    rows = np.arange(len(starts))
    middle_end = np.median(ends, axis=1)
    # What clocks leave of doubt must not make a transfer negative.
    transfer = np.maximum(middle_end - starts[rows, last], 0.0)
    lateness = starts - np.median(starts, axis=1, keepdims=True)
    return Arrivals(lateness, last, transfer, ends - middle_end[:, None])


def own_time(starts_s: Floats, ends_s: Floats) -> Floats:
    """Time of each rank outside of communication, s: it needs no common clock.

    Args:
        starts_s, ends_s: (operations, ranks), in order, of one step, the last operation of the
            step before as the first row. Overlapping operations (several threads) count once.
    """
    until = np.maximum.accumulate(ends_s, axis=0)[:-1]
    gaps: Floats = np.maximum(starts_s[1:] - until, 0.0).sum(axis=0)
    return gaps
