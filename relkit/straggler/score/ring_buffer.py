"""The newest steps of a job in arrays of a fixed size, one column a step."""

from __future__ import annotations

import numpy as np

from relkit.straggler.history_types import Doubles, Singles, steps_to_keep
from relkit.straggler.model import LOCAL_PARTS, PARTS, Floats


class StepRingBuffer:
    """Columns that move on; a step number that was left out has a column of NaN.

    Args:
        world_size: ranks.
    """

    def __init__(self, world_size: int) -> None:
        self._keep = steps_to_keep(world_size)
        self._parts = np.full((len(PARTS), world_size, self._keep), np.nan, np.float32)
        self._late = np.full((world_size, self._keep), np.nan, np.float32)
        self._ended = np.full(self._keep, np.nan)
        self._newest = -1
        self._count = 0

    def add(self, step: int, parts: Floats, late_s: Floats, unix_s: float) -> None:
        """One step, with a higher number than the one before.

        Args:
            parts: (len(PARTS), ranks), s; late_s: (ranks,), s; unix_s: when it ended.
        """
        skipped = step - self._newest - 1 if self._count else 0
        for left_out in range(min(skipped, self._keep)):
            self._clear((self._newest + 1 + left_out) % self._keep)
        place = step % self._keep
        self._parts[:, :, place] = parts
        self._late[:, place] = late_s
        self._ended[place] = unix_s
        self._count = min(self._keep, self._count + skipped + 1)
        self._newest = step

    def _clear(self, place: int) -> None:
        self._parts[:, :, place] = np.nan
        self._late[:, place] = np.nan
        self._ended[place] = np.nan

    @property
    def first_step(self) -> int:
        """Number of the oldest step that is kept; 0 before the first."""
        return max(0, self._newest - self._count + 1)

    @property
    def steps(self) -> int:
        """How many columns there are."""
        return self._count

    def columns(self) -> tuple[Singles, Singles, Singles, Doubles]:
        """(local_s, late_s, parts, step_unix_s), oldest step first."""
        order = np.arange(self.first_step, self.first_step + self._count) % self._keep
        parts = self._parts[:, :, order]
        local_s: Singles = parts[:LOCAL_PARTS].sum(axis=0)
        return local_s, self._late[:, order], parts, self._ended[order]
