"""Suspicions of one attempt: when each begins, when it is over, and which became a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from relkit.hang.columns.ranks import RankColumns
from relkit.hang.detection.detector import JobHealth, Look
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.model import JobView, RankView, Suspicion
from relkit.hang.suspicion.accuse import suspicions_of
from relkit.hang.suspicion.limits import Limits, Overdue
from relkit.hang.suspicion.paces import Paces

# Time between the two looks that show what a rank does; so often it is looked at again.
PACE_S = 5.0


class What(str, Enum):
    """What has become of a suspicion."""

    BEGAN = "began"
    WENT_ON = "went on"
    VERDICT = "verdict"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Turn:
    """Something became of a suspicion at this look.

    Args:
        what: that; suspicion: as it is now.
        is_counted: False where a verdict was counted before, and the job goes on all the same.
    """

    what: What
    suspicion: Suspicion
    is_counted: bool = True


@dataclass(slots=True, eq=False)
class _Open:
    """A suspicion that is not over.

    Args:
        suspicion: as last judged; began_s: when the stall began; convicted: it became a verdict.
    """

    suspicion: Suspicion
    began_s: float
    convicted: bool = False


class SuspicionWatch:
    """Call update() after each look of the hang detector."""

    def __init__(self) -> None:
        self._limits = Limits()
        self._paces = Paces()
        self._open: list[_Open] = []
        self._judged_s = 0.0

    @property
    def is_near(self) -> bool:
        """Something is suspicious, or soon will be."""
        return bool(self._open) or self._paces.since_s is not None

    @property
    def present(self) -> tuple[Suspicion, ...]:
        """Those that are not over, as last judged."""
        return tuple(each.suspicion for each in self._open)

    def update(
        self,
        look: Look,
        health: JobHealth,
        views: Sequence[RankView] | RankColumns,
        closer: Callable[[], JobView],
    ) -> tuple[Turn, ...]:
        """Learn from a look, and suspect where something takes longer than it ever did.

        Args:
            look, health: of the detector.
            views: all ranks, as the detector has seen them.
            closer: all ranks with what a judgement needs beyond that; asked only where there is
                something to judge.
        """
        limits, paces = self._limits, self._paces
        ranks = views if isinstance(views, RankColumns) else columns_of(views)
        limits.learn(look)
        if health is JobHealth.PAUSED:
            return ()
        if not look.under_way:
            paces.end()
            return self._over(look)
        paces.note(look.step_s, ranks)
        if health is JobHealth.HUNG:
            return self._convict(look)
        overdue = limits.overdue(look)
        if overdue is None:
            turns = self._over(look)
            if limits.overdue(look, PACE_S) is None:
                paces.end()
            elif paces.since_s is None:
                paces.begin(look.time_s, ranks)
            return turns
        if paces.since_s is None:
            paces.begin(look.time_s, ranks)
        self._age(look)
        if self._open and look.time_s - self._judged_s < PACE_S:
            return ()
        turns = self._judge(look, overdue, closer())
        paces.begin(look.time_s, ranks)
        return turns

    def _judge(self, look: Look, overdue: Overdue, job: JobView) -> tuple[Turn, ...]:
        self._judged_s = look.time_s
        turns: list[Turn] = []
        kept: list[_Open] = []
        now = suspicions_of(
            job, overdue, self._paces.manner, lambda rank: self._paces.words(rank, look.time_s)
        )
        for suspicion in now:
            before = self._known(suspicion, kept)
            if before is None:
                before = _Open(suspicion, look.time_s - suspicion.stalled_s)
                turns.append(Turn(What.BEGAN, suspicion))
            before.suspicion = suspicion
            kept.append(before)
        for each in self._open:
            if each in kept:
                continue
            if any(self._paces.moved(rank) for rank in each.suspicion.ranks):
                turns.append(_went_on(each))
            elif each.suspicion.ranks:
                kept.append(each)
        self._open = kept
        return tuple(turns)

    def _known(self, suspicion: Suspicion, taken: Sequence[_Open]) -> _Open | None:
        for each in self._open:
            is_same = each.suspicion.ranks & suspicion.ranks
            if each not in taken and (is_same or not (each.suspicion.ranks or suspicion.ranks)):
                return each
        return None

    def _age(self, look: Look) -> None:
        for each in self._open:
            each.suspicion = replace(each.suspicion, stalled_s=look.time_s - each.began_s)

    def _convict(self, look: Look) -> tuple[Turn, ...]:
        self._age(look)
        fresh = [each for each in self._open if not each.convicted]
        for each in fresh:
            each.convicted = True
        return tuple(Turn(What.VERDICT, each.suspicion) for each in fresh)

    def _over(self, look: Look) -> tuple[Turn, ...]:
        self._age(look)
        over, self._open = self._open, []
        return tuple(_went_on(each) for each in over)


def _went_on(each: _Open) -> Turn:
    return Turn(What.WENT_ON, each.suspicion, is_counted=not each.convicted)
