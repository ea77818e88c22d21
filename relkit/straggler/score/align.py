"""Puts the steps of all ranks side by side: one table a step, however late the nodes report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from relkit.straggler.model import PARTS
from relkit.straggler.step_record import StepRecord, StepTable

# How long a step waits for ranks of its peer group that have not reported it.
PATIENCE_S = 3.0
_MAX_WAITING = 512


@dataclass(slots=True)
class _PeerGroup:
    """Ranks of equal work, and their steps that are not complete or not used yet."""

    ranks: set[int] = field(default_factory=set)
    waiting: dict[int, dict[int, StepRecord]] = field(default_factory=dict)
    since_s: dict[int, float] = field(default_factory=dict)
    # Steps at and below this have been given out.
    done: int = -1


class Aligner:
    """Call add() with what nodes report, then take() what is complete.

    Ranks of one peer group (StepRecord.peers_key) share step numbers. Each group counts on its
    own; those steps are put together that ended at about the same time.

    Args:
        world_size: ranks; before all of them have been heard of, steps wait.
        patience_s: see PATIENCE_S.
    """

    def __init__(self, world_size: int, patience_s: float = PATIENCE_S) -> None:
        self._world_size, self._patience_s = world_size, patience_s
        self._groups: dict[str, _PeerGroup] = {}
        self._key_of: dict[int, str] = {}
        self._number = -1
        self._shift = 0
        self._reference = ""

    def add(self, records: Iterable[StepRecord], now_s: float) -> None:
        """Take what a node has reported.

        Args:
            records: of any ranks and steps, in order for each rank.
            now_s: monotonic time, s.
        """
        for record in records:
            before = self._key_of.get(record.rank)
            if before != record.peers_key:
                if before is not None:
                    self._leave(before, record.rank)
                self._key_of[record.rank] = record.peers_key
            group = self._groups.setdefault(record.peers_key, _PeerGroup())
            group.ranks.add(record.rank)
            if record.step <= group.done:
                continue
            group.waiting.setdefault(record.step, {})[record.rank] = record
            group.since_s.setdefault(record.step, now_s)

    def take(self, now_s: float) -> list[StepTable]:
        """Steps that are complete, or have waited long enough, oldest first."""
        tables: list[StepTable] = []
        while True:
            heads = {key: self._head(group, now_s) for key, group in self._groups.items()}
            ready = {key: step for key, step in heads.items() if step is not None}
            if not ready or (len(ready) < len(heads) and not self._waited(heads, now_s)):
                return tables
            tables.append(self._join(ready))

    def _head(self, group: _PeerGroup, now_s: float) -> int | None:
        """The oldest step of a peer group, if it can be used now."""
        if not group.waiting:
            return None
        step = min(group.waiting)
        complete = len(group.waiting[step]) >= len(group.ranks)
        complete = complete and len(self._key_of) >= self._world_size
        overdue = now_s - group.since_s[step] >= self._patience_s
        return step if complete or overdue or len(group.waiting) > _MAX_WAITING else None

    def _waited(self, heads: dict[str, int | None], now_s: float) -> bool:
        """Some group has been ready for so long that the others are not waited for any more."""
        for key, step in heads.items():
            group = self._groups[key]
            if step is None:
                continue
            if now_s - group.since_s[step] >= self._patience_s:
                return True
            if len(group.waiting) > _MAX_WAITING:
                return True
        return False

    def _join(self, ready: dict[str, int]) -> StepTable:
        ends = {
            key: max(record.end_ns for record in self._groups[key].waiting[step].values())
            for key, step in ready.items()
        }
        if self._reference not in ready:
            self._reference = max(ready, key=lambda key: len(self._groups[key].ranks))
        records: list[StepRecord] = []
        oldest = min(ends.values())
        for key, step in ready.items():
            group = self._groups[key]
            members = group.waiting[step]
            length_ns = max(record.end_ns - record.begin_ns for record in members.values())
            # Of a group that is ahead, the step belongs to a later table.
            if ends[key] - oldest > length_ns and len(ready) > 1:
                continue
            records += members.values()
            del group.waiting[step], group.since_s[step]
            group.done = step
        records.sort(key=lambda record: record.rank)
        return self._table(self._next_number(ready[self._reference]), records)

    def _table(self, number: int, records: list[StepRecord]) -> StepTable:
        parts = np.full((len(PARTS), self._world_size), np.nan)
        ranks = [record.rank for record in records]
        parts[:, ranks] = np.array([record.parts for record in records]).T
        return StepTable(number, parts, np.full(self._world_size, np.nan), tuple(records))

    def _next_number(self, reported: int) -> int:
        if reported + self._shift <= self._number:
            self._shift = self._number + 1 - reported
        self._number = reported + self._shift
        return self._number

    def _leave(self, key: str, rank: int) -> None:
        group = self._groups.get(key)
        if group is None:
            return
        group.ranks.discard(rank)
        if not group.ranks:
            del self._groups[key]
