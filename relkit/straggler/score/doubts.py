"""What speaks against a verdict from steps without CPU time in them; pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from relkit.straggler import measured_steps as columns
from relkit.straggler.measured_steps import MeasuredSteps
from relkit.straggler.model import Cause, Floats, Verdict

_ROWS = {Cause.COMPUTE: columns.COMPUTE, Cause.INPUT: columns.INPUT, Cause.HOST: columns.REST}
_WAITS = "it may have waited for a core: the trace has no CPU time, and "


def doubt(
    measured: MeasuredSteps, values: Floats, place: int, keys: Sequence[Hashable],
    verdict: Verdict, min_slowdown: float,
) -> str:  # fmt: skip
    """Why a rank may be slow only because it waited for a core; "" where that does not explain it.

    A rank that waits for a core does not wait each time: of every operation there is a step in
    which it had one. What is slow by itself is slow in all of them. So where nothing tells how
    long a rank waited, it is accused only if its quickest is slow too.

    Args:
        values: (MEASURED_PARTS, steps, ranks), since it is slow; place: of the rank.
        keys: one a rank; ranks with equal keys do equal work. min_slowdown: as in Settings.
    """
    if not measured.busy_host_shows:
        return ""
    peers = [at for at, key in enumerate(keys) if key == keys[place] and at != place]
    if not peers or not values.shape[1]:
        return _WAITS + "nobody does the same work"
    usual_s = float(np.nanmedian(values[: columns.REST + 1].sum(axis=0)[:, peers]))
    row = _ROWS.get(verdict.cause, columns.REST)
    mine_s = float(np.nanmin(values[row, :, place]))
    theirs_s = float(np.median([np.nanmin(values[row, :, at]) for at in peers]))
    what = "in its quickest step"
    if verdict.cause is Cause.COMPUTE:
        quickest = [each.least_work_s(verdict.first_step) for each in measured.ranks]
        mine_s, theirs_s = quickest[place], float(np.median([quickest[at] for at in peers]))
        what = "at their quickest its operations"
    more_s = mine_s - theirs_s
    # Half of it at least is in what did not wait.
    if more_s >= min_slowdown * usual_s and more_s >= 0.5 * verdict.score * usual_s:
        return ""
    share = more_s / usual_s if usual_s > 0.0 else 0.0
    return f"{_WAITS}{what} took {share:+.0%} against its peers"
