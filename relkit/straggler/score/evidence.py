"""What was seen of each rank since evidence against it began to gather."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import OFF_CPU, PARTS, Flags, Floats, Ints
from relkit.straggler.score.features import FEATURES, OWN
from relkit.straggler.score.slowdown import Slowdowns

_DECAY = 1.0 / 64.0
_ENDS = np.cumsum([len(PARTS), len(PARTS), len(FEATURES)])


class RankEvidence:
    """Sums over the steps since evidence against a rank began to gather; empty where there is none.

    Args:
        ranks: how many.
    """

    def __init__(self, ranks: int) -> None:
        self._sums: Floats = np.zeros((int(_ENDS[-1]) + 4, ranks))
        # Views of the rows of _sums, as summands() orders them.
        self.mine_s, self.theirs_s, self.slowdown_s, rest = np.split(self._sums, _ENDS)
        self.usual_s, self.steps, self.late_s, self.late_steps = rest
        # The most evidence that there was, as log-likelihood, and in which step.
        self.peak = np.zeros(ranks)
        self.peak_step = np.zeros(ranks, dtype=np.int64)

    def forget(self, which: Flags) -> None:
        """Of these ranks."""
        self._sums[:, which] = 0.0

    @staticmethod
    def summands(parts: Floats, late_s: Floats, slowdowns: Slowdowns) -> Floats:
        """What steps add to the sums of a suspect: what add() and skip() take.

        Args:
            parts: (steps, parts, ranks); late_s: (steps, ranks); slowdowns: what was made of
                them.
        """
        known = np.isfinite(slowdowns.slowdown_s[:, OWN])
        late = known & np.isfinite(late_s)
        columns = (slowdowns.usual_s, known, np.where(late, late_s, 0.0), late)
        summands = np.concatenate(
            [parts, slowdowns.reference_s, slowdowns.slowdown_s, np.stack(columns, axis=1)], axis=1
        )
        summands = np.where(known[:, None], np.nan_to_num(summands), 0.0)
        # Of off-CPU time it matters whether it is known; one step without it makes the sum unknown.
        for at, source in ((OFF_CPU, parts), (len(PARTS) + OFF_CPU, slowdowns.reference_s)):
            summands[:, at][known & ~np.isfinite(source[:, OFF_CPU])] = np.nan
        return summands

    def add(self, summands: Floats, suspected: Flags, accused: Flags) -> None:
        """Take one step.

        Args:
            summands: of that step; suspected: ranks that it is kept of; accused: of these all
                steps count alike, of the others the latest count most.
        """
        # What was seen long before the accusation would only dilute it.
        self._sums *= np.where(accused, 1.0, 1.0 - _DECAY)
        self._sums += np.where(suspected, summands, 0.0)

    def skip(self, summands: Floats, begun: Ints) -> None:
        """Take steps in which nobody stands accused.

        Args:
            summands: of those steps; begun: by rank, place of the step in which the
                evidence that is left at their end began: -1 where it was there before them,
                their number where none is.
        """
        steps = len(summands)
        self._sums[:, begun >= 0] = 0.0
        self._sums *= (1.0 - _DECAY) ** steps
        place = np.arange(steps)
        weight = np.where(
            place[:, None] >= begun, (1.0 - _DECAY) ** (steps - 1 - place)[:, None], 0
        )
        self._sums += np.where(weight[:, None] > 0, summands * weight[:, None], 0.0).sum(axis=0)
