"""How long something has taken in this job so far, and how long is therefore too long."""

from __future__ import annotations

from collections import deque
from math import ceil

# No wait below this is suspicious, whatever is usual.
FLOOR_S = 10.0
CAPACITY = 64
_QUANTILE = 0.9
# Fewer than this say nothing of what is usual: only the long ones of a kind are seen in flight.
_ENOUGH = 5
_FACTOR = 3.0
# A pause that came and went may take this much longer the next time.
_AGAIN = 1.5


class History:
    """Durations of one kind, in a fixed room: the newest ones, and the longest."""

    def __init__(self) -> None:
        self._newest: deque[float] = deque(maxlen=CAPACITY)
        self.longest_s = 0.0

    def add(self, duration_s: float) -> None:
        """Something of this kind has ended after that long."""
        self._newest.append(duration_s)
        self.longest_s = max(self.longest_s, duration_s)

    @property
    def usual_s(self) -> float:
        """What nine of ten take at most; 0 where too few are known."""
        if len(self._newest) < _ENOUGH:
            return 0.0
        ordered = sorted(self._newest)
        return ordered[ceil(_QUANTILE * len(ordered)) - 1]

    @property
    def limit_s(self) -> float:
        """What takes longer is suspicious: far above the usual, and above all that has been."""
        return max(FLOOR_S, _FACTOR * self.usual_s, _AGAIN * self.longest_s)

    def forget_the_longest(self) -> None:
        """What was rare so far will not come again: imports and compilation before a first step."""
        self.longest_s = self.usual_s
