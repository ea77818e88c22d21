"""How much of a stretch of time some spans cover; pure."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Floats, Ints


class Covered:
    """Spans as one; where they overlap, they count once.

    Args:
        start, end: of each span, in any order of the spans and any unit.
    """

    def __init__(self, start: Floats, end: Floats) -> None:
        order = np.argsort(start, kind="stable")
        starts = start[order]
        ends = np.maximum.accumulate(end[order])
        fresh = np.ones(len(starts), dtype=bool)
        fresh[1:] = starts[1:] > ends[:-1]
        first = np.flatnonzero(fresh)
        begin = starts[first]
        end = ends[np.append(first[1:] - 1, len(ends) - 1)] if len(first) else ends
        self._places = np.stack([begin, end], axis=1).ravel()
        covered = np.cumsum(end - begin)
        self._covered = np.stack([covered - (end - begin), covered], axis=1).ravel()

    def between(self, begin: Floats | Ints, end: Floats | Ints) -> Floats:
        """Covered time of each stretch, in the unit of the spans."""
        if not len(self._places):
            return np.zeros(len(begin))
        upper: Floats = np.interp(end, self._places, self._covered)
        lower: Floats = np.interp(begin, self._places, self._covered)
        return upper - lower
