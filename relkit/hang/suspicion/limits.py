"""What is usual in this job: for each kind of operation, and for the time between operations."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from relkit.hang.columns.ranks import FlightColumns, places_in, sorted_order
from relkit.hang.detection.detector import Look
from relkit.hang.detection.flights import Flight, Flights

# No wait below this is suspicious, whatever is usual.
FLOOR_S = 10.0
CAPACITY = 64
_QUANTILE = 0.9
# Fewer than this say nothing of what is usual: only the long ones of a kind are seen in flight.
_ENOUGH = 5
_FACTOR = 3.0
# A pause that came and went may take this much longer the next time.
_AGAIN = 1.5
# A job calls few kinds of operations; whatever comes after so many shares one history.
MAX_KINDS = 64
# Digest of a kind that stands for all others.
_OTHER = 0


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


@dataclass(frozen=True, slots=True)
class Overdue:
    """What takes longer than it ever did.

    Args:
        flights: operations beyond the limit of their kind, the oldest first; empty where it is
            that no rank finishes anything.
        age_s: of the oldest, or since anything was finished.
        longest_s: how long that took at most so far.
    """

    flights: tuple[Flight, ...]
    age_s: float
    longest_s: float


@dataclass(slots=True)
class Limits:
    """Learns from each look; says what takes too long.

    Args:
        kinds: how long operations took that were seen in flight, by the digest of their kind;
            gaps: times between two finished operations.
        flying: what was in flight at the newest look.
        tick_s: the longest time between two of the last looks; what is never seen in flight took
            less than that.
        under_way: the job was under way at the newest look.
    """

    kinds: dict[int, History] = field(default_factory=dict)
    gaps: History = field(default_factory=History)
    flying: FlightColumns = field(default_factory=lambda: FlightColumns.of(()))
    tick_s: float = 0.0
    under_way: bool = False

    def learn(self, look: Look) -> None:
        """Take what has ended since the look before."""
        flying = Flights.of(look.flights).columns
        ids = flying.ids
        order = sorted_order(ids)
        _, flies_on = places_in(ids if order is None else ids[order], self.flying.ids)
        ended = ~flies_on
        if ended.any():
            kinds, which = np.unique(self.flying.kind[ended], return_inverse=True)
            longest_s = np.zeros(len(kinds))
            np.maximum.at(longest_s, which, self.flying.age_s[ended] + look.step_s)
            self._add(dict(zip(kinds.tolist(), longest_s.tolist(), strict=True)))
        if look.gap_s is not None:
            self.gaps.add(look.gap_s)
        if look.under_way and not self.under_way:
            for history in (self.gaps, *self.kinds.values()):
                history.forget_the_longest()
        self.flying, self.under_way = flying, look.under_way
        self.tick_s = max(look.step_s, 0.9 * self.tick_s)

    def overdue(self, look: Look, ahead_s: float = 0.0) -> Overdue | None:
        """What takes too long at this look, or would `ahead_s` later."""
        flights = Flights.of(look.flights)
        columns = flights.columns
        old = np.flatnonzero(columns.age_s + ahead_s > FLOOR_S)
        if len(old):
            kinds, which = np.unique(columns.kind[old], return_inverse=True)
            limits_s = np.array([self._history(kind).limit_s for kind in kinds.tolist()])
            late = old[columns.age_s[old] + ahead_s > limits_s[which]]
            if len(late):
                late = late[np.lexsort((columns.rank[late], -columns.age_s[late]))]
                longest_s = self._history(int(columns.kind[late[0]])).longest_s
                return Overdue(
                    tuple(flights.told(late)),
                    float(columns.age_s[late[0]]),
                    max(longest_s, self.tick_s),
                )
        if look.idle_s + ahead_s > self.gaps.limit_s:
            return Overdue((), look.idle_s, max(self.gaps.longest_s, self.tick_s))
        return None

    def _add(self, ended: Mapping[int, float]) -> None:
        """Operations of these kinds have ended after that long."""
        left = []
        for kind, age_s in ended.items():
            if kind in self.kinds or len(self.kinds) < MAX_KINDS:
                self.kinds.setdefault(kind, History()).add(age_s)
            else:
                left.append(age_s)
        # No more than a history can hold: a large job has a group a host.
        for age_s in sorted(left)[-CAPACITY:]:
            self.kinds.setdefault(_OTHER, History()).add(age_s)

    def _history(self, kind: int) -> History:
        if kind not in self.kinds and len(self.kinds) >= MAX_KINDS:
            kind = _OTHER
        return self.kinds.get(kind) or History()
