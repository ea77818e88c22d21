"""Marks of traced calls as rows of their own functions; in the recorder all have one (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relkit.hook.model import OpKind
from relkit.hook.traced_calls import MARK
from relkit.timeline.model import Hook, Rows


class CallRows:
    """Gives each function a hook behind those of the recorder.

    Args:
        names: of the functions, by the numbers in their marks.
        recorded: names of the recorder's hooks.
    """

    def __init__(self, names: Mapping[int, str], recorded: Sequence[str]) -> None:
        self._mark = recorded.index(MARK) if MARK in recorded else -1
        self._numbers = np.array(sorted(names), np.int64)
        self._first = len(recorded)
        self.hooks = tuple(Hook(names[each], OpKind.MARK) for each in sorted(names))

    def named(self, rows: Rows) -> Rows:
        """The rows, with marks of calls as of their functions; of an unknown number they stay."""
        marks = np.flatnonzero(rows["hook"] == self._mark)
        if self._mark < 0 or not len(marks):
            return rows
        number = rows["seq"][marks]
        at = np.minimum(np.searchsorted(self._numbers, number), len(self._numbers) - 1)
        known = self._numbers[at] == number
        rows = rows.copy()
        rows["hook"][marks[known]] = self._first + at[known]
        rows["seq"][marks[known]] = -1
        return rows
