"""What was seen of each rank since it came under suspicion."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import PARTS, Flags, Floats, Ints
from relkit.straggler.score.features import CHANNELS, UNSTARVED, WHOLE
from relkit.straggler.score.slowdown import Excess

_FADES = 1.0 / 64.0
# Of the usual time, what waiting for a core adds to `lasting_s` in a single step.
_MOST_WAIT_A_STEP = 0.25
_ASLEEP = PARTS.index("asleep")
_ENDS = np.cumsum([len(PARTS), len(PARTS), len(CHANNELS)])


class Suspicion:
    """Sums over the steps of the present suspicion; empty where there is none.

    `lasting_s` is the excess of the whole, of which waiting for a core is a quarter of the usual
    time at most in each step: once for long is not the same as always.

    Args:
        ranks: how many.
    """

    def __init__(self, ranks: int) -> None:
        self._sums: Floats = np.zeros((int(_ENDS[-1]) + 5, ranks))
        # Views of the rows of _sums, as summands() orders them.
        self.mine_s, self.theirs_s, self.excess_s, rest = np.split(self._sums, _ENDS)
        self.usual_s, self.lasting_s, self.steps, self.late_s, self.late_steps = rest

    def forget(self, which: Flags) -> None:
        """Of these ranks."""
        self._sums[:, which] = 0.0

    @staticmethod
    def summands(parts: Floats, late_s: Floats, seen: Excess) -> Floats:
        """What steps add to the sums of a rank under suspicion: what add() and skip() take.

        Args:
            parts: (steps, parts, ranks); late_s: (steps, ranks); seen: what was made of them.
        """
        known = np.isfinite(seen.excess_s[:, WHOLE])
        late = known & np.isfinite(late_s)
        waits_s = seen.excess_s[:, WHOLE] - seen.excess_s[:, UNSTARVED]
        most_s = _MOST_WAIT_A_STEP * seen.usual_s
        lasting_s = seen.excess_s[:, UNSTARVED] + np.minimum(waits_s, most_s)
        columns = (seen.usual_s, lasting_s, known, np.where(late, late_s, 0.0), late)
        found = np.concatenate(
            [parts, seen.reference_s, seen.excess_s, np.stack(columns, axis=1)], axis=1
        )
        found = np.where(known[:, None], np.nan_to_num(found), 0.0)
        # Of sleep it matters whether it is known; one step without that makes the sum unknown.
        for at, told in ((_ASLEEP, parts), (len(PARTS) + _ASLEEP, seen.reference_s)):
            found[:, at][known & ~np.isfinite(told[:, _ASLEEP])] = np.nan
        return found

    def add(self, summands: Floats, suspected: Flags, accused: Flags) -> None:
        """Take one step.

        Args:
            summands: of that step; suspected: ranks that it is kept of; accused: of these all
                steps count alike, of the others the latest count most.
        """
        # What was seen long before the accusation would only dilute it.
        self._sums *= np.where(accused, 1.0, 1.0 - _FADES)
        self._sums += np.where(suspected, summands, 0.0)

    def skip(self, summands: Floats, begun: Ints) -> None:
        """Take steps in which nobody stands accused.

        Args:
            summands: of those steps; begun: by rank, place of the first step of the suspicion that
                is left at their end: -1 where it was there before them, their number where none is.
        """
        steps = len(summands)
        self._sums[:, begun >= 0] = 0.0
        self._sums *= (1.0 - _FADES) ** steps
        place = np.arange(steps)
        weight = np.where(
            place[:, None] >= begun, (1.0 - _FADES) ** (steps - 1 - place)[:, None], 0
        )
        self._sums += np.where(weight[:, None] > 0, summands * weight[:, None], 0.0).sum(axis=0)
