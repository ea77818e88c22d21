"""Steps without what their ranks waited for a core, where nothing tells how long that was; pure."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from relkit.straggler import measured_steps as columns
from relkit.straggler.measured_steps import RankSteps
from relkit.straggler.model import Floats

# Who waits for a core does not wait at the same place so many times in a row.
STEPS = 5


def quickest_parts(rank: RankSteps) -> Floats:
    """The parts of each step, at the quickest that they are in this one and the next four.

    Each operation by itself: in one step it may be this one that waited, and in the next another.
    What is slow by itself stays as it is. The first step of a slowness stays the first one, as
    only later ones are looked at. The last four have fewer behind them than that: they are no
    evidence.

    Returns:
        (MEASURED_PARTS, steps), as RankSteps.parts.
    """
    parts = rank.parts.copy()
    for row in (columns.INPUT, columns.REST):
        parts[row] = _least(parts[row][None])[0]
    if rank.operation_s.size:
        # One that is not in every step counts for nothing: it is in none of the quickest.
        took_s = np.nan_to_num(rank.operation_s)
        parts[columns.COMPUTE] = np.fmin(parts[columns.COMPUTE], _least(took_s).sum(axis=0))
    return parts


def _least(values: Floats) -> Floats:
    """Over each step and the next ones; at the end, over the last ones."""
    width = min(STEPS, values.shape[1])
    if width < 2:
        return values
    known = np.where(np.isfinite(values), values, np.inf)
    least = sliding_window_view(known, width, axis=1).min(axis=2)
    filled = np.concatenate([least, np.repeat(least[:, -1:], width - 1, axis=1)], axis=1)
    quickest: Floats = np.where(np.isfinite(values), np.minimum(filled, values), np.nan)
    return quickest
