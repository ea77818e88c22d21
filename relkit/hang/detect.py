"""Decides from the recorders whether a job makes progress; pure, without a clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from relkit.hang.model import RankView
from relkit.hang.stackclass import SETUP
from relkit.hang.words import of_ranks, operation
from relkit.hook.model import HookState, Op
from relkit.ranks import RankSet

_MIN_JUMP_S = 5.0
_JUMP_FACTOR = 5.0
_STOPPED = ("T", "t")
# A job is under way once something was finished in so many different seconds: the first operations
# of a job, before its first step, take one or two.
UNDER_WAY_S = 10
# Part of the time for which a rank runs or is ready to run, above which it does not merely wait;
# and part of it for which it is ready and gets no CPU, above which its host has too few of them.
_WANTS_CPU = 0.25
_LACKS_CPU = 0.2
# In timeouts: how much time of a busy host is not counted before a job is under way, where no rank
# waits in an operation; and where some do, as that is how most hangs look, too.
_MAX_PATIENCE, _MAX_PATIENCE_OF_WAITING = 5.0, 1.0

_Process = tuple[str, int]
_Flight = tuple[int, int, str]


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
class Flight:
    """An operation in flight.

    Args:
        age_s: for how long it counts, s: without gaps in which the caller did not run.
        rank: who is in it; state: of its recorder; op: the operation.
    """

    age_s: float
    rank: int
    state: HookState
    op: Op


@dataclass(frozen=True, slots=True)
class Look:
    """What the newest look has shown.

    Args:
        time_s: the detector's own time; step_s: how much of it has passed since the look before.
        flights: all operations in flight.
        idle_s: since any rank finished anything; 0 before the first operation.
        gap_s: the time between two finished operations that has ended since the look before;
            None where none was finished.
        under_way: something was finished in enough different seconds to know what is usual.
    """

    time_s: float = 0.0
    step_s: float = 0.0
    flights: tuple[Flight, ...] = ()
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


class HangDetector:
    """Call update() at regular intervals with all ranks; it says when the job is hung.

    A job is hung when an operation has been in flight on some rank for longer than the timeout,
    or when no rank has finished any operation for that long. Before the first operation there
    is no verdict. Times of operations are differences on the clock of their own host; hosts are
    never compared. Time in which the caller did not run (its machine slept, or had no CPU for
    it), or in which every rank of a job of several was stopped by a signal, does not count.
    Neither does, before a job is under way, time in which the ranks compute (imports after the
    first operation) or get no CPU for it, or time in which no rank is heard of any more.

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
        self._processes: dict[int, _Process] = {}
        self._finished: dict[int, int] = {}
        self._flights: dict[int, dict[_Flight, float]] = {}
        self._left: set[int] = set()
        self._progress_s: float | None = None
        self._gap_s: float | None = None
        # The caller's seconds in which something was finished: how many, and the newest.
        self._seconds, self._second = 0, -1
        # Where nobody waited, and where some did.
        self._uncounted_s = {True: 0.0, False: 0.0}
        self._hung = False

    def update(self, now_s: float, ranks: Sequence[RankView]) -> Detection:
        """Take one look.

        Args:
            now_s: the caller's monotonic time, s.
            ranks: all ranks, in any order; those with no recorder may be left out.
        """
        live = [view for view in ranks if view.alive]
        paused = len(live) > 1 and all(v.process_state[:1] in _STOPPED for v in live)
        self._restarted(live)
        known = [(view.rank, view.hook) for view in live if view.hook is not None]
        moved = [state for rank, state in known if state.finished > self._finished.get(rank, 0)]
        outside = [view for view in live if view.hook is None or not view.hook.in_flight]
        nobody_waits = len(outside) == len(live)
        starts = not moved and self._starts_slowly(outside, nobody_waits=nobody_waits)
        silent = self._progress_s is not None and _nothing_is_heard_of(live)
        skipped_s = self._clock.advance(now_s, counts=not (paused or starts or silent))
        self._uncounted_s[nobody_waits] += skipped_s if starts else 0.0
        self._note_progress(now_s, known, moved)
        self._note_ends(ranks)
        flights = self._note_flights(known)
        idle_s = 0.0 if self._progress_s is None else self._clock.time_s - self._progress_s
        self.look = Look(
            self._clock.time_s, self._clock.step_s, flights, idle_s, self._gap_s, self._under_way
        )
        if paused:
            return self._calm(
                JobHealth.PAUSED, RankSet.of(v.rank for v in live),
                f"all {len(live)} ranks are stopped by a signal: the job is paused",
            )  # fmt: skip
        if not live:
            return self._calm(JobHealth.HEALTHY, RankSet(), "no rank is running")
        if self._progress_s is None and not flights:
            return self._calm(JobHealth.HEALTHY, RankSet(), "starting: no operation yet")
        limit_s = self.hang_timeout_s
        overdue = [flight for flight in flights if flight.age_s > limit_s]
        if overdue:
            stuck = RankSet.of(flight.rank for flight in overdue)
            return self._overdue(stuck, _overdue_sentence(overdue, limit_s))
        if idle_s > limit_s:
            return self._overdue(
                RankSet.of(view.rank for view in live),
                f"no rank has finished an operation for {idle_s:.1f} s (limit {limit_s:g} s)",
            )
        what = "nothing is heard of any rank" if silent else "operations are finishing"
        return self._calm(JobHealth.HEALTHY, RankSet(), what)

    @property
    def _under_way(self) -> bool:
        return self._seconds >= UNDER_WAY_S

    def _starts_slowly(self, outside: Sequence[RankView], *, nobody_waits: bool) -> bool:
        """Whether what is between the job and its first steps is computing, or the lack of CPUs.

        Where ranks wait for others in an operation, an endless loop looks like a long import: only
        on a host that has too few CPUs for its ranks is that time not counted.

        Args:
            outside: ranks that are in no operation; nobody_waits: those are all that live.
        """
        if self._under_way:
            return False
        if not outside or not all(_wants_cpu(view) for view in outside):
            return False
        if not nobody_waits and not all(_lacks_cpu(view) for view in outside):
            return False
        patience = _MAX_PATIENCE if nobody_waits else _MAX_PATIENCE_OF_WAITING
        return self._uncounted_s[nobody_waits] <= patience * self.hang_timeout_s

    def _overdue(self, ranks: RankSet, sentence: str) -> Detection:
        fresh, self._hung = not self._hung, True
        return Detection(JobHealth.HUNG, ranks, sentence, fresh)

    def _calm(self, health: JobHealth, ranks: RankSet, sentence: str) -> Detection:
        self._hung = False
        return Detection(health, ranks, sentence)

    def _restarted(self, live: Sequence[RankView]) -> None:
        """New processes under known ranks: a new attempt, of which nothing is known yet."""
        # The recorder of a new process appears only at its first operation: go by the pid.
        now = {view.rank: (view.host, view.pid) for view in live}
        if any(self._processes.get(rank, process) != process for rank, process in now.items()):
            self.reset()
        self._processes |= now

    def _note_progress(
        self,
        now_s: float,
        known: Sequence[tuple[int, HookState]],
        moved: Sequence[HookState],
    ) -> None:
        self._gap_s = None
        if self._progress_s is None and all(_only_set_up(state) for _, state in known):
            return
        self._finished |= {rank: state.finished for rank, state in known}
        if not moved:
            if self._progress_s is None:
                self._progress_s = self._clock.time_s
            return
        since_s = min(max(0, s.now_ns - s.last_finish_ns) / 1e9 for s in moved)
        at_s = self._clock.time_s - min(since_s, self._clock.step_s)
        if self._progress_s is not None:
            self._gap_s = max(0.0, at_s - self._progress_s)
        self._progress_s = at_s
        if int(now_s) > self._second:
            self._second, self._seconds = int(now_s), self._seconds + 1

    def _note_ends(self, ranks: Sequence[RankView]) -> None:
        """A rank that ends normally moves the job, too: others may be on their way out."""
        left = {view.rank for view in ranks if not view.alive and view.exit_code == 0}
        if left - self._left and self._progress_s is not None:
            self._progress_s = self._clock.time_s
        self._left = left

    def _note_flights(self, known: Sequence[tuple[int, HookState]]) -> tuple[Flight, ...]:
        """All that is in flight."""
        flights = []
        for rank, state in known:
            before = self._flights.get(rank)
            # What was not there at the last look cannot be older than the time since then.
            bound_s = float("inf") if before is None else self._clock.step_s
            begun: dict[_Flight, float] = {}
            for op in state.in_flight:
                key = (op.os_thread_id, op.start_ns, op.name)
                age_s = max(0, state.now_ns - op.start_ns) / 1e9
                begun[key] = (before or {}).get(key, self._clock.time_s - min(age_s, bound_s))
                flights.append(Flight(self._clock.time_s - begun[key], rank, state, op))
            self._flights[rank] = begun
        return tuple(flights)


def _nothing_is_heard_of(live: Sequence[RankView]) -> bool:
    """A source has spoken of all of them, and knows nothing of them any more."""
    return bool(live) and all(view.hook is None and view.sources.said for view in live)


def _wants_cpu(view: RankView) -> bool:
    cpu = view.cpu
    return cpu.window_s > 0 and cpu.used_s + cpu.waited_s >= _WANTS_CPU * cpu.window_s


def _lacks_cpu(view: RankView) -> bool:
    return view.cpu.window_s > 0 and view.cpu.waited_s >= _LACKS_CPU * view.cpu.window_s


def _only_set_up(state: HookState) -> bool:
    """All that it has begun so far is to make its groups: what follows may be long imports.

    A group is made in one operation. Brief looks do not name those that have finished.
    """
    begun = any(c.seq >= 0 for c in state.communicators)
    begun = begun or any(op.name not in SETUP for op in state.in_flight)
    return not begun and state.started <= len(state.communicators)


def _overdue_sentence(overdue: Sequence[Flight], limit_s: float) -> str:
    """Speaks of the operation that most ranks are stuck in, the oldest where that is a tie."""
    groups: dict[str, list[tuple[float, int]]] = {}
    for flight in overdue:
        members = groups.setdefault(operation(flight.op, flight.state), [])
        members.append((flight.age_s, flight.rank))
    name, members = min(groups.items(), key=lambda g: (-len(g[1]), -max(g[1])[0], g[0]))
    oldest_s = max(age_s for age_s, _ in members)
    who = of_ranks(RankSet.of(rank for _, rank in members))
    return f"{name} in flight for {oldest_s:.1f} s on {who} (limit {limit_s:g} s)"
