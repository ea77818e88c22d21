"""What was seen of each rank since it came under suspicion."""

from __future__ import annotations

import numpy as np

from relkit.straggler.channels import CHANNELS, UNSTARVED, WHOLE
from relkit.straggler.model import PARTS, Flags, Floats, StepTable

_FADES = 1.0 / 64.0
# Of the usual time, what waiting for a core adds to `lasting_s` in a single step.
_MOST_WAIT_A_STEP = 0.25
_ASLEEP = PARTS.index("asleep")


class Suspicion:
    """Sums over the steps of the present suspicion; empty where there is none.

    `lasting_s` is the excess of the whole, of which waiting for a core is a quarter of the usual
    time at most in each step: once for long is not the same as always.

    Args:
        ranks: how many.
    """

    def __init__(self, ranks: int) -> None:
        self.steps: Floats = np.zeros(ranks)
        self.mine_s: Floats = np.zeros((len(PARTS), ranks))
        self.theirs_s: Floats = np.zeros((len(PARTS), ranks))
        self.excess_s: Floats = np.zeros((len(CHANNELS), ranks))
        self.usual_s: Floats = np.zeros(ranks)
        self.lasting_s: Floats = np.zeros(ranks)
        self.late_s: Floats = np.zeros(ranks)
        self.late_steps: Floats = np.zeros(ranks)

    def forget(self, which: Flags) -> None:
        """Of these ranks."""
        for kept in self._all():
            kept[..., which] = 0.0

    def add(
        self,
        table: StepTable,
        reference_s: Floats,
        excess_s: Floats,
        usual_s: Floats,
        suspected: Flags,
        accused: Flags,
    ) -> None:
        """Take one step.

        Args:
            reference_s: of the peers, (parts, ranks); excess_s: over them, (channels, ranks);
            usual_s: the peers' whole; suspected: ranks that it is kept of; accused: of these all
            steps count alike, of the others the latest count most.
        """
        # What was seen long before the accusation would only dilute it.
        weight = np.where(accused, 1.0, 1.0 - _FADES)
        for kept in self._all():
            kept *= weight
        adds = suspected & np.isfinite(excess_s[WHOLE])
        self.steps += adds
        late = adds & np.isfinite(table.late_s)
        self.late_steps += late
        waits_s = excess_s[WHOLE] - excess_s[UNSTARVED]
        lasting_s = excess_s[UNSTARVED] + np.minimum(waits_s, _MOST_WAIT_A_STEP * usual_s)
        new = (table.parts, reference_s, excess_s, usual_s, lasting_s)
        for kept, now in zip(self._all()[: len(new)], new, strict=True):
            kept += np.where(adds, np.nan_to_num(now), 0.0)
        # Of sleep it matters whether it is known; one step without that makes the sum unknown.
        for kept, now in zip((self.mine_s, self.theirs_s), new[:2], strict=True):
            kept[_ASLEEP, adds & ~np.isfinite(now[_ASLEEP])] = np.nan
        self.late_s += np.where(late, np.nan_to_num(table.late_s), 0.0)

    def _all(self) -> tuple[Floats, ...]:
        return (
            self.mine_s, self.theirs_s, self.excess_s, self.usual_s, self.lasting_s,
            self.steps, self.late_s, self.late_steps,
        )  # fmt: skip
