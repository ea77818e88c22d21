"""The period of a sequence of collectives: how many of them make one step."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Ints

# A period must explain this share of the sequence; an evaluation is allowed to be the rest.
MIN_MATCH = 0.6
# Of periods that explain about as much as the best one, the shortest is the step. What comes in
# between once in so many steps (a log, a checkpoint) does not make one step of them all.
_RARE = 32
_MAX_PERIOD = 4096
_MIN_REPEATS = 3


def find_period(coded: Ints) -> tuple[int, float]:
    """(period, share of the sequence that repeats after it); period 0 where there is none.

    Args:
        coded: what is communicated, one number for each kind.
    """
    count = len(coded)
    longest = min(_MAX_PERIOD, count // _MIN_REPEATS)
    if longest < 1:
        return 0, 0.0
    shares = np.array(
        [np.count_nonzero(coded[p:] == coded[:-p]) / (count - p) for p in range(1, longest + 1)]
    )
    best = float(shares.max())
    if best < MIN_MATCH:
        return 0, best
    # One collective in between puts a whole period and itself out of place.
    periods = np.arange(1, longest + 1)
    as_good = shares >= best - (periods + 1) / (_RARE * periods)
    period = int(np.argmax(as_good)) + 1
    return period, float(shares[period - 1])
