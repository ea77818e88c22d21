"""Puts the steps of all ranks side by side: one table a step, however late the nodes report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relkit.straggler.step_record import StepRecord

# How long a step waits for ranks of its kind that have not reported it.
PATIENCE_S = 3.0
_MOST_WAITING = 512


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """One step of the job.

    Args:
        number: grows by one at least from step to step, also where the job takes up another
            pattern or starts again.
        records: one a rank at most; those missing were not reported.
    """

    number: int
    records: tuple[StepRecord, ...]


@dataclass(slots=True)
class _Kind:
    """Ranks of equal work, and their steps that are not complete or not used yet."""

    ranks: set[int] = field(default_factory=set)
    waiting: dict[int, dict[int, StepRecord]] = field(default_factory=dict)
    since_s: dict[int, float] = field(default_factory=dict)
    # Steps at and below this have been given out.
    done: int = -1


class Aligner:
    """Call add() with what nodes report, then take() what is complete.

    Ranks of one kind (StepRecord.peers_key) share step numbers. Kinds count on their own; those
    steps are put together that ended at about the same time.

    Args:
        world_size: ranks; before all of them have been heard of, steps wait.
        patience_s: see PATIENCE_S.
    """

    def __init__(self, world_size: int, patience_s: float = PATIENCE_S) -> None:
        self._world_size, self._patience_s = world_size, patience_s
        self._kinds: dict[str, _Kind] = {}
        self._kind_of: dict[int, str] = {}
        self._number = -1
        self._shift = 0
        self._reference = ""

    def add(self, records: Iterable[StepRecord], now_s: float) -> None:
        """Take what a node has reported.

        Args:
            records: of any ranks and steps, in order for each rank.
            now_s: monotonic time, s.
        """
        for one in records:
            before = self._kind_of.get(one.rank)
            if before != one.peers_key:
                if before is not None:
                    self._leave(before, one.rank)
                self._kind_of[one.rank] = one.peers_key
            kind = self._kinds.setdefault(one.peers_key, _Kind())
            kind.ranks.add(one.rank)
            if one.step <= kind.done:
                continue
            kind.waiting.setdefault(one.step, {})[one.rank] = one
            kind.since_s.setdefault(one.step, now_s)

    def take(self, now_s: float) -> list[AlignedStep]:
        """Steps that are complete, or have waited long enough, oldest first."""
        found: list[AlignedStep] = []
        while True:
            heads = {key: self._head(kind, now_s) for key, kind in self._kinds.items()}
            ready = {key: step for key, step in heads.items() if step is not None}
            if not ready or (len(ready) < len(heads) and not self._waited(heads, now_s)):
                return found
            found.append(self._join(ready))

    def _head(self, kind: _Kind, now_s: float) -> int | None:
        """The oldest step of a kind, if it can be used now."""
        if not kind.waiting:
            return None
        step = min(kind.waiting)
        whole = len(kind.waiting[step]) >= len(kind.ranks)
        whole = whole and len(self._kind_of) >= self._world_size
        late = now_s - kind.since_s[step] >= self._patience_s
        return step if whole or late or len(kind.waiting) > _MOST_WAITING else None

    def _waited(self, heads: dict[str, int | None], now_s: float) -> bool:
        """Some kind has been ready for so long that the others are not waited for any more."""
        for key, step in heads.items():
            kind = self._kinds[key]
            if step is None:
                continue
            if now_s - kind.since_s[step] >= self._patience_s:
                return True
            if len(kind.waiting) > _MOST_WAITING:
                return True
        return False

    def _join(self, ready: dict[str, int]) -> AlignedStep:
        ends = {
            key: max(one.end_ns for one in self._kinds[key].waiting[step].values())
            for key, step in ready.items()
        }
        if self._reference not in ready:
            self._reference = max(ready, key=lambda key: len(self._kinds[key].ranks))
        records: list[StepRecord] = []
        oldest = min(ends.values())
        for key, step in ready.items():
            kind = self._kinds[key]
            members = kind.waiting[step]
            length_ns = max(one.end_ns - one.begin_ns for one in members.values())
            # Of a kind that is ahead, the step belongs to a later table.
            if ends[key] - oldest > length_ns and len(ready) > 1:
                continue
            records += members.values()
            del kind.waiting[step], kind.since_s[step]
            kind.done = step
        number = self._next_number(ready[self._reference])
        return AlignedStep(number, tuple(sorted(records, key=lambda one: one.rank)))

    def _next_number(self, told: int) -> int:
        if told + self._shift <= self._number:
            self._shift = self._number + 1 - told
        self._number = told + self._shift
        return self._number

    def _leave(self, key: str, rank: int) -> None:
        kind = self._kinds.get(key)
        if kind is None:
            return
        kind.ranks.discard(rank)
        if not kind.ranks:
            del self._kinds[key]
