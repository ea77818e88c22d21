"""What a job would have taken, had a rank been as fast as its peers; pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import Floats
from relkit.straggler.score.peers import Peers


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """A job beside an ideal one, in which no rank takes longer than its peers do.

    Nobody ends a step before the slowest rank has come to it: a step takes what that one takes
    itself, and the transfers, which stay as they are.

    Args:
        lost_s: of each step, that the ideal job would not have taken; NaN = not known.
        by_rank_s: (steps, ranks), what the job would have gained, were that rank alone at the
            median of its peers.
    """

    lost_s: Floats
    by_rank_s: Floats


def what_if(local_s: Floats, peer_groups: Sequence[Hashable]) -> WhatIf:
    """Hold a job against an ideal one.

    Args:
        local_s: (steps, ranks), what each took itself; NaN = not known. peer_groups: one key a
            rank; ranks with equal keys do equal work, and one without peers stays as it is.
    """
    others_s = Peers(peer_groups).median_of_others(local_s)
    ideal_s = np.fmin(local_s, others_s)
    known = np.isfinite(local_s)
    took_s = np.where(known, local_s, -np.inf)
    slowest_s = took_s.max(axis=1, initial=-np.inf)
    ideally_s = np.where(known, ideal_s, -np.inf).max(axis=1, initial=-np.inf)
    # Without a rank, the slowest is the second slowest, where it was the slowest itself.
    ordered = np.sort(np.concatenate([np.full((len(took_s), 1), -np.inf), took_s], axis=1), axis=1)
    second_s = ordered[:, -2]
    rest_s = np.where(took_s == slowest_s[:, None], second_s[:, None], slowest_s[:, None])
    alone_s = np.maximum(rest_s, np.where(known, ideal_s, -np.inf))
    with np.errstate(invalid="ignore"):
        gained_s = np.where(known, slowest_s[:, None] - alone_s, 0.0)
        lost_s = np.where(np.isfinite(slowest_s), slowest_s - ideally_s, np.nan)
    return WhatIf(lost_s, np.maximum(gained_s, 0.0))
