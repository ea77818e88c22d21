"""What ranks did between two looks, some seconds apart: their recorders' counters and CPU time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relkit.hang.model import Manner, RankView

# A rank that sleeps in a collective uses a few per cent of a core for its background threads.
_IDLE_SHARE = 0.05
_STARVED_SHARE = 0.5
_STOPPED = ("T", "t")


@dataclass(slots=True)
class _Pace:
    """One rank since the first of the two looks.

    Args:
        operations: begun and finished, at that look; now: at the newest one.
        cpu_s, wait_s: CPU time used since, and waited for, s; seen_s: the time that covers.
        state: of the process, a letter; alive: it was there at the newest look.
    """

    operations: int
    now: int
    cpu_s: float = 0.0
    wait_s: float = 0.0
    seen_s: float = 0.0
    state: str = ""
    alive: bool = True


class Paces:
    """All ranks, from begin() on."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Pace] = {}
        self.since_s: float | None = None

    def begin(self, time_s: float, views: Iterable[RankView]) -> None:
        """The first of the two looks."""
        self.since_s = time_s
        self._ranks = {
            view.rank: _Pace(_operations(view), _operations(view), state=view.process_state)
            for view in views
        }

    def end(self) -> None:
        """Nothing is of interest any more."""
        self.since_s = None
        self._ranks = {}

    def note(self, step_s: float, views: Iterable[RankView]) -> None:
        """Another look, `step_s` after the one before."""
        for view in views:
            pace = self._ranks.get(view.rank)
            if pace is None:
                continue
            pace.now, pace.state, pace.alive = _operations(view), view.process_state, view.alive
            if view.cpu.window_s > 0:
                # CPU time is known for a window that ends now.
                pace.cpu_s += view.cpu.used_s / view.cpu.window_s * step_s
                pace.wait_s += view.cpu.waited_s / view.cpu.window_s * step_s
                pace.seen_s += step_s

    def manner(self, rank: int) -> Manner:
        """What a rank did."""
        pace = self._ranks.get(rank)
        if pace is None or not pace.alive:
            return Manner.UNKNOWN
        if pace.now != pace.operations:
            return Manner.MOVING
        if pace.cpu_s > _IDLE_SHARE * pace.seen_s:
            return Manner.SPINNING
        if pace.wait_s > _STARVED_SHARE * pace.seen_s:
            return Manner.STARVED
        return Manner.FROZEN

    def words(self, rank: int, time_s: float) -> str:
        """The same for a person: "frozen: no operation and no CPU time in 5 s"; "" for UNKNOWN."""
        manner, pace = self.manner(rank), self._ranks.get(rank)
        if manner is Manner.UNKNOWN or pace is None or self.since_s is None:
            return ""
        within = f"in {time_s - self.since_s:.0f} s"
        if manner is Manner.MOVING:
            count = pace.now - pace.operations
            return f"{manner}: {count:,} call{'' if count == 1 else 's'} begun or ended {within}"
        if manner is Manner.SPINNING:
            share = pace.cpu_s / pace.seen_s if pace.seen_s else 0.0
            return f"{manner}: no operation {within}, {share:.0%} of a core"
        if manner is Manner.STARVED:
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
        pace = self._ranks.get(rank)
        return pace is None or pace.now != pace.operations


def _operations(view: RankView) -> int:
    return 0 if view.hook is None else view.hook.started + view.hook.finished
