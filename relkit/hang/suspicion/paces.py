"""What ranks did between two looks, some seconds apart: their recorders' counters and CPU time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.hang.columns.ranks import Flags, Floats, Ints, RankColumns
from relkit.hang.model import Manner

# A rank that sleeps in a collective uses a few per cent of a core for its background threads.
_IDLE_SHARE = 0.05
_CPU_WAIT_SHARE = 0.5
_STOPPED = ("T", "t")


@dataclass(slots=True, eq=False)
class _Paces:
    """All ranks since the first of the two looks.

    Args:
        place: of each rank by its number in the arrays, -1 where it is in none.
        operations: begun and finished, at that look; now: at the newest one.
        cpu_s, wait_s: CPU time used since, and waited for, s; seen_s: the time that covers.
        state: of the process, a letter's code point; alive: it was there at the newest look.
    """

    place: Ints
    operations: Ints
    now: Ints
    cpu_s: Floats
    wait_s: Floats
    seen_s: Floats
    state: Ints
    alive: Flags


@dataclass(frozen=True, slots=True)
class _Pace:
    """One of them; see there."""

    operations: int
    now: int
    cpu_s: float
    wait_s: float
    seen_s: float
    state: str
    alive: bool


class Paces:
    """All ranks, from begin() on."""

    def __init__(self) -> None:
        self._ranks: _Paces | None = None
        self.since_s: float | None = None

    def begin(self, time_s: float, ranks: RankColumns) -> None:
        """The first of the two looks."""
        self.since_s = time_s
        count = len(ranks)
        place = np.full(ranks.room, -1, np.int64)
        place[ranks.rank] = np.arange(count)
        self._ranks = _Paces(
            place,
            ranks.operations,
            ranks.operations.copy(),
            np.zeros(count),
            np.zeros(count),
            np.zeros(count),
            ranks.state.copy(),
            np.ones(count, np.bool_),
        )

    def end(self) -> None:
        """Nothing is of interest any more."""
        self.since_s = None
        self._ranks = None

    def note(self, step_s: float, ranks: RankColumns) -> None:
        """Another look, `step_s` after the one before."""
        paces = self._ranks
        if paces is None:
            return
        rows = np.flatnonzero(ranks.rank < len(paces.place))
        rows = rows[paces.place[ranks.rank[rows]] >= 0]
        to = paces.place[ranks.rank[rows]]
        paces.now[to] = ranks.operations[rows]
        paces.state[to], paces.alive[to] = ranks.state[rows], ranks.alive[rows]
        # CPU time is known for a window that ends now.
        has_window = ranks.window_s[rows] > 0
        rows, to = rows[has_window], to[has_window]
        paces.cpu_s[to] += ranks.used_s[rows] / ranks.window_s[rows] * step_s
        paces.wait_s[to] += ranks.waited_s[rows] / ranks.window_s[rows] * step_s
        paces.seen_s[to] += step_s

    def _pace(self, rank: int) -> _Pace | None:
        paces = self._ranks
        if paces is None or not 0 <= rank < len(paces.place) or paces.place[rank] < 0:
            return None
        at = int(paces.place[rank])
        return _Pace(
            int(paces.operations[at]),
            int(paces.now[at]),
            float(paces.cpu_s[at]),
            float(paces.wait_s[at]),
            float(paces.seen_s[at]),
            chr(paces.state[at]).strip("\0"),
            bool(paces.alive[at]),
        )

    def manner(self, rank: int) -> Manner:
        """What a rank did."""
        pace = self._pace(rank)
        if pace is None or not pace.alive:
            return Manner.UNKNOWN
        if pace.now != pace.operations:
            return Manner.MOVING
        if pace.cpu_s > _IDLE_SHARE * pace.seen_s:
            return Manner.SPINNING
        if pace.wait_s > _CPU_WAIT_SHARE * pace.seen_s:
            return Manner.WAITING_FOR_CPU
        return Manner.FROZEN

    def words(self, rank: int, time_s: float) -> str:
        """The same for a person: "frozen: no operation and no CPU time in 5 s"; "" for UNKNOWN."""
        manner, pace = self.manner(rank), self._pace(rank)
        if manner is Manner.UNKNOWN or pace is None or self.since_s is None:
            return ""
        within = f"in {time_s - self.since_s:.0f} s"
        if manner is Manner.MOVING:
            count = pace.now - pace.operations
            return f"{manner}: {count:,} call{'' if count == 1 else 's'} begun or ended {within}"
        if manner is Manner.SPINNING:
            share = pace.cpu_s / pace.seen_s if pace.seen_s else 0.0
            return f"{manner}: no operation {within}, {share:.0%} of a core"
        if manner is Manner.WAITING_FOR_CPU:
            share = pace.wait_s / pace.seen_s if pace.seen_s else 0.0
            return f"{manner}: no operation {within}, ready to run for {share:.0%} of that"
        why = ""
        if pace.state[:1] in _STOPPED:
            why = ", stopped by a signal"
        elif pace.state[:1] == "D":
            why = ", in an uninterruptible kernel wait"
        return f"{manner}: no operation and no CPU time {within}{why}"

    def moved(self, rank: int) -> bool:
        """It has begun or finished something since."""
        pace = self._pace(rank)
        return pace is None or pace.now != pace.operations
