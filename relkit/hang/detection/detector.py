"""Decides from the recorders whether a job makes progress; pure, without a clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

import numpy as np

from relkit.hang.columns.ranks import (
    Flags,
    FlightColumns,
    Floats,
    Ints,
    Numbers,
    RankColumns,
    places_in,
    sorted_order,
)
from relkit.hang.detection.flights import Flight, Flights
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.model import RankView
from relkit.hang.words import of_ranks, operation
from relkit.ranks import RankSet

_MIN_JUMP_S = 5.0
_JUMP_FACTOR = 5.0
# A job is under way once something was finished in so many different seconds: the first operations
# of a job, before its first step, take one or two.
UNDER_WAY_S = 10
# Part of the time for which a rank runs or is ready to run, above which it does not merely wait;
# and part of it for which it is ready and gets no CPU, above which its host has too few of them.
_WANTS_CPU = 0.25
_LACKS_CPU = 0.2
# In timeouts: how much time of a busy host is not counted before a job is under way, where no rank
# waits in an operation; and where some do, as that is how most hangs look, too. It is the time that
# it would have taken with a CPU for each rank, or a tenth of the real time if that is more.
_MAX_PATIENCE, _MAX_PATIENCE_OF_WAITING = 5.0, 1.0
_MIN_SHARE = 0.1
# A rank that uses more of a core than this as it exits is at work. It may use so many timeouts of
# CPU time; at least a tenth of the real time counts: on a busy host little CPU time takes long.
_WORKS_AT_EXIT = 0.005
_MAX_PATIENCE_AT_EXIT = 6.0


class JobHealth(str, Enum):
    """How the job looks at one moment."""

    HEALTHY = "healthy"
    PAUSED = "paused"
    HUNG = "hung"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Detection:
    """The result of one look at the job.

    Args:
        health: healthy, paused or hung.
        ranks: those with an operation in flight for too long; all live ones where nobody is in
            an operation, or the job is paused; empty while healthy.
        sentence: why, for a person; never empty.
        fresh: this is the first look that finds this hang: act now, and only now.
    """

    health: JobHealth
    ranks: RankSet
    sentence: str
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What the newest look has shown.

    Args:
        time_s: the detector's own time; step_s: how much of it has passed since the look before.
        flights: all operations in flight (Flights, where the detector made it).
        idle_s: since any rank finished anything; 0 before the first operation.
        gap_s: the time between two finished operations that has ended since the look before;
            None where none was finished.
        under_way: something was finished in enough different seconds to know what is usual.
    """

    time_s: float = 0.0
    step_s: float = 0.0
    flights: Sequence[Flight] = ()
    idle_s: float = 0.0
    gap_s: float | None = None
    under_way: bool = False


class _Clock:
    """The caller's time, less the gaps in which the caller itself did not run."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.step_s = 0.0
        self._last_s: float | None = None
        self._usual: deque[float] = deque(maxlen=9)

    def advance(self, now_s: float, *, counts: bool) -> float:
        """Let time pass; returns how much of it does not count."""
        gap_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        self._last_s = now_s
        usual_s = median(self._usual) if self._usual else gap_s
        if gap_s > max(_MIN_JUMP_S, _JUMP_FACTOR * usual_s):
            gap_s = usual_s
        elif gap_s > 0:
            self._usual.append(gap_s)
        self.step_s = gap_s if counts else 0.0
        self.time_s += self.step_s
        return gap_s - self.step_s


@dataclass(slots=True)
class _Seconds:
    """The caller's seconds in which something was finished: how many, and the newest."""

    count: int = 0
    newest: int = -1

    def note(self, now_s: float) -> None:
        """Something was finished."""
        if int(now_s) > self.newest:
            self.newest, self.count = int(now_s), self.count + 1


@dataclass(slots=True)
class _Exit:
    """The end of a job, whose scripts have all ended.

    Args:
        is_over: the job was given time to exit; uncounted_s: how much of that was not counted.
    """

    is_over: bool = False
    uncounted_s: float = 0.0


class HangDetector:
    """Call update() at regular intervals with all ranks; it says when the job is hung.

    A job is hung when an operation has been in flight on some rank for longer than the timeout,
    or when no rank has finished any operation for that long. Before the first operation there
    is no verdict. Times of operations are differences on the clock of their own host; hosts are
    never compared. Time in which the caller did not run (its machine slept, or had no CPU for
    it), or in which every rank of a job of several was stopped by a signal, does not count.
    Neither does, before a job is under way, time in which the ranks compute (imports after the
    first operation) or get no CPU for it, or time in which no rank is heard of any more; nor, once
    all scripts have ended (give_time_to_exit), time in which a rank is at work as it exits.

    Args:
        hang_timeout_s: the user's limit, s, above 0.
    """

    def __init__(self, hang_timeout_s: float) -> None:
        if not hang_timeout_s > 0:
            raise ValueError("the hang timeout must be above 0")
        self.hang_timeout_s = hang_timeout_s
        self.look = Look()
        self._clock = _Clock()
        self.reset()

    def reset(self) -> None:
        """Forget the ranks: they were restarted."""
        # By rank: its process, the operations that it has finished, whether its flights have been
        # looked at, whether it has left.
        self._processes: Numbers = np.zeros(0, np.uint64)
        self._finished: Ints = np.zeros(0, np.int64)
        self._seen: Flags = np.zeros(0, np.bool_)
        self._left: Flags = np.zeros(0, np.bool_)
        # What is in flight, sorted, and since when it counts.
        self._ids: Numbers = np.zeros(0, np.uint64)
        self._begun_s: Floats = np.zeros(0, np.float64)
        self._progress_s: float | None = None
        self._gap_s: float | None = None
        self._seconds = _Seconds()
        # Where nobody waited, and where some did.
        self._uncounted_s = {True: 0.0, False: 0.0}
        self._hung = False
        self._exit = _Exit()

    def give_time_to_exit(self) -> None:
        """All scripts have ended and their ranks are slow to exit: that is no hang yet.

        The timeout begins again, and time in which a rank is at work as it exits does not count.
        """
        self._exit.is_over, self._hung = True, False
        if self._progress_s is not None:
            self._progress_s = self._clock.time_s

    @property
    def is_over(self) -> bool:
        """The job has been given time to exit, and nothing was finished since."""
        return self._exit.is_over

    def update(self, now_s: float, ranks: Sequence[RankView]) -> Detection:
        """Take one look.

        Args:
            now_s: the caller's monotonic time, s.
            ranks: all ranks, in any order; those with no recorder may be left out.
        """
        return self.look_at(now_s, columns_of(ranks), {view.rank: view for view in ranks})

    def look_at(self, now_s: float, ranks: RankColumns, views: Mapping[int, RankView]) -> Detection:
        """The same for a job of any size.

        Args:
            now_s: see update; ranks: all of them.
            views: by rank, those of which more is known: sentences speak of these.
        """
        live = int(ranks.alive.sum())
        paused = live > 1 and bool(ranks.stopped[ranks.alive].all())
        self._restarted(ranks)
        self._make_room(ranks.room)
        moved = ranks.known & (ranks.finished > self._finished[ranks.rank])
        flies = np.zeros(self._room, np.bool_)
        flies[ranks.flights.rank] = True
        outside = ranks.alive & ~flies[ranks.rank]
        nobody_waits = int(outside.sum()) == live
        has_moved = bool(moved.any())
        starts = not has_moved and self._starts_slowly(ranks, outside, nobody_waits=nobody_waits)
        heard_of = ranks.alive & ~ranks.unheard
        silent = self._progress_s is not None and live > 0 and not heard_of.any()
        self._exit.is_over = self.is_over and not has_moved
        works = self._work_at_exit(ranks)
        exits = works > _WORKS_AT_EXIT
        skipped_s = self._clock.advance(now_s, counts=not (paused or starts or silent or exits))
        if exits:
            self._exit.uncounted_s += skipped_s * max(_MIN_SHARE, works)
        elif starts:
            self._uncounted_s[nobody_waits] += skipped_s * _share_of_cpu(ranks, outside)
        self._note_progress(now_s, ranks, moved)
        self._note_ends(ranks)
        flights = Flights(self._note_flights(ranks), views)
        idle_s = 0.0 if self._progress_s is None else self._clock.time_s - self._progress_s
        self.look = Look(
            self._clock.time_s, self._clock.step_s, flights, idle_s, self._gap_s, self._under_way
        )
        if paused:
            return self._calm(
                JobHealth.PAUSED, RankSet.of(ranks.rank[ranks.alive].tolist()),
                f"all {live} ranks are stopped by a signal: the job is paused",
            )  # fmt: skip
        if not live:
            return self._calm(JobHealth.HEALTHY, RankSet(), "no rank is running")
        if self._progress_s is None and not len(flights):
            return self._calm(JobHealth.HEALTHY, RankSet(), "starting: no operation yet")
        limit_s = self.hang_timeout_s
        overdue = np.flatnonzero(flights.columns.age_s > limit_s)
        if len(overdue):
            stuck = RankSet.of(flights.columns.rank[overdue].tolist())
            return self._overdue(stuck, _overdue_sentence(flights, overdue, stuck, limit_s))
        if idle_s > limit_s:
            return self._overdue(
                RankSet.of(ranks.rank[ranks.alive].tolist()),
                f"no rank has finished an operation for {idle_s:.1f} s (limit {limit_s:g} s)",
            )
        what = "nothing is heard of any rank" if silent else "operations are finishing"
        return self._calm(JobHealth.HEALTHY, RankSet(), what)

    @property
    def _under_way(self) -> bool:
        return self._seconds.count >= UNDER_WAY_S

    def _starts_slowly(self, ranks: RankColumns, outside: Flags, *, nobody_waits: bool) -> bool:
        """Whether what is between the job and its first steps is computing, or the lack of CPUs.

        Where ranks wait for others in an operation, an endless loop looks like a long import: only
        on a host that has too few CPUs for its ranks is that time not counted.

        Args:
            outside: ranks that are in no operation; nobody_waits: those are all that live.
        """
        if self._under_way:
            return False
        used_s, window_s = ranks.used_s[outside], ranks.window_s[outside]
        waited_s = ranks.waited_s[outside]
        wants = (window_s > 0) & (used_s + waited_s >= _WANTS_CPU * window_s)
        if not len(wants) or not wants.all():
            return False
        if not nobody_waits and not (waited_s >= _LACKS_CPU * window_s).all():
            return False
        patience = _MAX_PATIENCE if nobody_waits else _MAX_PATIENCE_OF_WAITING
        return self._uncounted_s[nobody_waits] <= patience * self.hang_timeout_s

    def _work_at_exit(self, ranks: RankColumns) -> float:
        """What the busiest rank of a job that exits uses of a core; 0 once it has had its time."""
        patience_s = _MAX_PATIENCE_AT_EXIT * self.hang_timeout_s
        if not self.is_over or len(ranks.flights) or self._exit.uncounted_s > patience_s:
            return 0.0
        used_s, window_s = ranks.used_s[ranks.alive], ranks.window_s[ranks.alive]
        return float((used_s[window_s > 0] / window_s[window_s > 0]).max(initial=0.0))

    def _overdue(self, ranks: RankSet, sentence: str) -> Detection:
        fresh, self._hung = not self._hung, True
        return Detection(JobHealth.HUNG, ranks, sentence, fresh)

    def _calm(self, health: JobHealth, ranks: RankSet, sentence: str) -> Detection:
        self._hung = False
        return Detection(health, ranks, sentence)

    def _restarted(self, ranks: RankColumns) -> None:
        """New processes under known ranks: a new attempt, of which nothing is known yet."""
        # The recorder of a new process appears only at its first operation: go by the pid.
        self._make_room(ranks.room)
        live, processes = ranks.rank[ranks.alive], ranks.process[ranks.alive]
        before = self._processes[live]
        if bool(((before != 0) & (before != processes)).any()):
            self.reset()
            self._make_room(ranks.room)
        self._processes[live] = processes

    @property
    def _room(self) -> int:
        return len(self._processes)

    def _make_room(self, room: int) -> None:
        more = room - self._room
        if more > 0:
            self._processes = np.append(self._processes, np.zeros(more, np.uint64))
            self._finished = np.append(self._finished, np.zeros(more, np.int64))
            self._seen = np.append(self._seen, np.zeros(more, np.bool_))
            self._left = np.append(self._left, np.zeros(more, np.bool_))

    def _note_progress(self, now_s: float, ranks: RankColumns, moved: Flags) -> None:
        self._gap_s = None
        known = ranks.known
        if self._progress_s is None and bool(ranks.set_up[known].all()):
            return
        self._finished[ranks.rank[known]] = ranks.finished[known]
        if not moved.any():
            if self._progress_s is None:
                self._progress_s = self._clock.time_s
            return
        since_s = float(ranks.idle_s[moved].min())
        at_s = self._clock.time_s - min(since_s, self._clock.step_s)
        if self._progress_s is not None:
            self._gap_s = max(0.0, at_s - self._progress_s)
        self._progress_s = at_s
        self._seconds.note(now_s)

    def _note_ends(self, ranks: RankColumns) -> None:
        """A rank that ends normally moves the job, too: others may be on their way out."""
        left = ranks.rank[ranks.left]
        if not self._left[left].all() and self._progress_s is not None:
            self._progress_s = self._clock.time_s
        self._left[:] = False
        self._left[left] = True

    def _note_flights(self, ranks: RankColumns) -> FlightColumns:
        """All that is in flight, and for how long it counts."""
        flights, time_s = ranks.flights, self._clock.time_s
        # What was not there at the last look cannot be older than the time since then.
        bound_s = np.where(self._seen[flights.rank], self._clock.step_s, np.inf)
        begun_s = time_s - np.minimum(flights.age_s, bound_s)
        ids = flights.ids
        places, is_old = places_in(self._ids, ids)
        begun_s[is_old] = self._begun_s[places[is_old]]
        looked_at = np.zeros(self._room, np.bool_)
        looked_at[ranks.rank[ranks.known]] = True
        kept = ~looked_at[(self._ids >> np.uint64(32)).astype(np.int64)]
        ids = np.concatenate((ids, self._ids[kept]))
        since_s = np.concatenate((begun_s, self._begun_s[kept]))
        order = sorted_order(ids)
        self._ids = ids if order is None else ids[order]
        self._begun_s = since_s if order is None else since_s[order]
        self._seen |= looked_at
        return FlightColumns(flights.rank, flights.key, flights.kind, time_s - begun_s)


def _share_of_cpu(ranks: RankColumns, of: Flags) -> float:
    """What the one of these ranks that gets most has of the CPU time that it is ready to use."""
    used_s, waited_s = ranks.used_s[of], ranks.waited_s[of]
    return max(_MIN_SHARE, float((used_s / np.maximum(used_s + waited_s, 1e-9)).max()))


def _overdue_sentence(flights: Flights, overdue: Ints, stuck: RankSet, limit_s: float) -> str:
    """Speaks of the operation that most ranks are stuck in, the oldest where that is a tie."""
    groups: dict[str, list[tuple[float, int]]] = {}
    for flight in flights.told(overdue):
        members = groups.setdefault(operation(flight.op, flight.state), [])
        members.append((flight.age_s, flight.rank))
    if not groups:
        oldest_s = float(flights.columns.age_s[overdue].max())
        return (
            f"operations in flight for {oldest_s:.1f} s on {of_ranks(stuck)} (limit {limit_s:g} s)"
        )
    name, members = min(groups.items(), key=lambda g: (-len(g[1]), -max(g[1])[0], g[0]))
    oldest_s = max(age_s for age_s, _ in members)
    who = of_ranks(RankSet.of(rank for _, rank in members))
    return f"{name} in flight for {oldest_s:.1f} s on {who} (limit {limit_s:g} s)"
