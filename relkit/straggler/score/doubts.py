"""What speaks against a verdict from steps without CPU time in them; pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relkit.straggler import measured_steps as columns
from relkit.straggler.measured_steps import RankSteps
from relkit.straggler.model import Cause, Flags, Verdict

_ROWS = {Cause.COMPUTE: columns.COMPUTE, Cause.INPUT: columns.INPUT, Cause.HOST: columns.REST}
_LOCAL = (columns.COMPUTE, columns.INPUT, columns.REST)
_WAITS = "it may have waited for a core: there is no CPU time in a trace, and "
# What operations take in a usual step, by their quickest, from which on the host lacks cores.
_LACKS_CORES = 1.5


def doubt(
    mine: RankSteps, peers: Sequence[RankSteps], verdict: Verdict, min_slowdown: float
) -> str:
    """Why a rank may be slow only because it waited for a core; "" where that does not explain it.

    A rank that waits for a core does not wait each time: of every operation there is a step in
    which it had one. What is slow by itself is slow in all of them. So where nothing tells how
    long a rank waited, it is accused only if its quickest is slow too.

    Args:
        mine: of the rank; peers: who do equal work. min_slowdown: as in Settings.
    """
    if not peers:
        return _WAITS + "nobody does the same work"
    row = _ROWS.get(verdict.cause, columns.REST)
    since = verdict.first_step
    if row != columns.COMPUTE and (times := _crowding(mine, since)) > _LACKS_CORES:
        return f"{_WAITS}its operations took {times:.2g} times as long as at their quickest"
    usual_s = float(
        np.median([sum(_least(peer, each, since) for each in _LOCAL) for peer in peers])
    )
    theirs_s = float(np.median([_least(peer, row, since) for peer in peers]))
    # As much as half of the steps show too much, all of them may still: there are only so many.
    more_s = _least(mine, row, since) - _unsure(mine, row, since) - theirs_s
    # A quarter of it at least is in what surely did not wait.
    if more_s >= max(min_slowdown, 0.25 * verdict.score) * usual_s:
        return ""
    share = more_s / usual_s if usual_s > 0.0 else 0.0
    return f"{_WAITS}at its quickest it took {share:+.0%} against its peers, as far as is sure"


def _least(rank: RankSteps, row: int, since: int, *, only: slice = slice(None)) -> float:
    """The least that a part of a step takes, s.

    Args:
        only: of the steps since then.
    """
    chosen: Flags = np.zeros(len(rank.numbers), dtype=bool)
    chosen[np.flatnonzero((rank.numbers >= since) & np.isfinite(rank.parts[row]))[only]] = True
    if not chosen.any():
        return 0.0
    least_s = float(rank.parts[row, chosen].min())
    if row != columns.COMPUTE:
        return least_s
    return float(np.fmin(least_s, rank.least_work_s(chosen)))


def _unsure(rank: RankSteps, row: int, since: int) -> float:
    """How much more every other step shows than all of them, s."""
    halves = [_least(rank, row, since, only=slice(first, None, 2)) for first in (0, 1)]
    return max(0.0, float(np.mean(halves)) - _least(rank, row, since))


def _crowding(rank: RankSteps, since: int) -> float:
    """How many times longer than at their quickest the operations of a usual step take."""
    at = (rank.numbers >= since) & np.isfinite(rank.parts[columns.COMPUTE])
    least_s = _least(rank, columns.COMPUTE, since)
    usual_s = float(np.median(rank.parts[columns.COMPUTE, at])) if at.any() else 0.0
    return usual_s / least_s if least_s > 0.0 else 1.0
