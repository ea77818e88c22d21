"""Cuts what one rank communicates into steps while it runs, alike on all ranks of equal work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relkit.hook.model import Communicator, OpKind
from relkit.straggler.collect.event_rows import MARK_KIND, P2P_TRACK, ROW, STEP_MARK, Rows
from relkit.straggler.collect.step_pattern import Pattern, find_pattern
from relkit.straggler.collect.step_work import UsualWork
from relkit.straggler.model import Flags, Ints

# What is looked at to learn a pattern; the hook's ring holds as many.
_MAX_HELD = 4096
# The pattern is looked for again when so much more has been seen than at the last try.
_TRY_AGAIN = 1.2
_FIRST_TRY = 12
# Until so much was seen a pattern may be the mistake of a beginner, and is looked at again.
_SETTLED = 1024
# Steps' worth of operations, and operations at least, without a step before it is learnt anew:
# it may be that the job evaluates.
_GIVE_UP = (64, 512)
# One thread may be so many collectives ahead of another that serves the same group.
_AHEAD = 48
_NO_STEP = np.zeros(1, ROW)[:0]


@dataclass(frozen=True, slots=True)
class SegmentedSteps:
    """Steps that have just become complete.

    Args:
        numbers: of each its number, ascending unless the pattern has changed.
        begins, ends: of each a row whose end_ns and counters are those of its boundary.
        rows: all operations that ended in them, by end.
        exact: by marks, not inferred.
        peers_key: equal for ranks of equal work.
    """

    numbers: Ints
    begins: Rows
    ends: Rows
    rows: Rows
    exact: bool
    peers_key: str


class StepSegmenter:
    """Feed it what a rank has done; it hands out the steps that this completes.

    With marks (`relkit.step()`) a step goes from one to the next and has the number of the mark.
    Without, a step is one repetition of the pattern of one communicator (see find_pattern), in the
    rotation that begins with the least of its collectives, from the end of the collective before
    its first to the end of its last. Its number is the sequence number of its first collective by
    the length of the pattern. So ranks agree without a word between them, also one that was looked
    at later. Collectives off the pattern (an evaluation) are in no step.
    """

    def __init__(self) -> None:
        self._held: Rows = _NO_STEP
        self._seen = 0
        self._p2p_seen = 0
        self._next_try = _FIRST_TRY
        self._sizes: dict[int, int] = {}
        self._pattern: Pattern | None = None
        self._past: list[Rows] = []
        self._past_rows = 0
        self._marked = False
        self._edge: Rows = _NO_STEP
        self._edge_seq = -1
        self._changes = -1
        self._usual = UsualWork()

    @property
    def changes(self) -> int:
        """How often the job has taken up another pattern."""
        return max(0, self._changes)

    def feed(
        self, rows: Rows, groups: Sequence[Communicator], *, before: int = 0, lost: int = 0
    ) -> SegmentedSteps | None:
        """Take what a rank has done since the last call.

        Args:
            rows: ROWs by ticket; groups: the rank's communicators.
            before: at the first call, sends and receives that were not seen.
            lost: operations between the last call and this one that were overwritten.
        """
        self._sizes = {group.index: group.size for group in groups}
        self._p2p_seen += before
        if lost:
            self._forget(lost)
        p2p = rows["kind"] == OpKind.P2P
        count = int(np.count_nonzero(p2p))
        if count:
            rows["seq"][p2p] = self._p2p_seen + np.arange(count)
            self._p2p_seen += count
        self._seen += int(np.count_nonzero(rows["kind"] != MARK_KIND))
        self._held = np.concatenate([self._held, rows])
        self._past.append(rows)
        self._past_rows += len(rows)
        while self._past_rows - len(self._past[0]) >= _MAX_HELD:
            self._past_rows -= len(self._past.pop(0))
        if (rows["mark"] == STEP_MARK).any() and not self._marked:
            self._marked, self._pattern = True, None
            self._usual, self._edge = UsualWork(), _NO_STEP
        cut = self._by_marks() if self._marked else self._by_pattern()
        if len(self._held) > 2 * _MAX_HELD:
            self._held = self._held[-_MAX_HELD:]
        return cut

    def _forget(self, lost: int) -> None:
        """A step with a hole in it would look like one of much local time."""
        self._held, self._edge, self._edge_seq = _NO_STEP, _NO_STEP, -1
        if self._pattern is not None and self._pattern.communicator == P2P_TRACK:
            self._p2p_seen += lost

    def _by_marks(self) -> SegmentedSteps | None:
        marks = np.flatnonzero(self._held["mark"] == STEP_MARK)
        edges = self._held[marks]
        if len(self._edge):
            edges = np.concatenate([self._edge, edges])
        if len(edges) < 2:
            return None
        apart = np.append(True, np.diff(edges["end_ns"]) > 0)
        edges = edges[apart]
        numbers, begins, ends = edges["seq"][:-1], edges[:-1], edges[1:]
        if not len(numbers):
            return None
        rows = self._between(begins[0], ends[-1])
        if not self._usual.take(rows, begins, ends, self._sizes):
            return None
        self._drop(edges[-1:])
        return self._cut(numbers, begins, ends, rows)

    def _by_pattern(self) -> SegmentedSteps | None:
        self._look_for_pattern()
        if self._pattern is None:
            return None
        mine = self._paced()
        if self._edge_seq >= 0:
            mine = mine[mine["seq"] > self._edge_seq]
        mine = mine[np.argsort(mine["seq"], kind="stable")]
        mine = mine[: self._unbroken(mine["seq"])]
        period = len(self._pattern.codes)
        odd = mine["code"] != self._pattern.codes[0]
        if self._pattern.phase >= 0 and odd.any():
            self._after_odd(int(mine["end_ns"][odd].max()))
            return None
        if len(mine) < period:
            return None
        firsts = _greedy(self._pattern.places(mine["seq"], mine["code"]), period)
        return self._finish(mine, firsts, period) if len(firsts) else None

    def _finish(self, mine: Rows, firsts: Ints, period: int) -> SegmentedSteps | None:
        """Boundaries of steps that start at these places of the pace-setting group."""
        latest = np.maximum.accumulate(mine["end_ns"])
        # Of collectives in flight together, the one that ends last ends the step.
        last = np.searchsorted(latest, latest, side="left")
        ends = mine[last[firsts + period - 1]]
        newest = int(self._held["end_ns"].max())
        # What another thread has just finished may not be in yet; the next operation tells.
        settled = ends["end_ns"] < newest
        follows = len(self._edge) > 0 and int(mine["seq"][0]) == self._edge_seq + 1
        has_begin = (firsts > 0) | follows
        begins = mine[last[np.maximum(firsts - 1, 0)]]
        if follows and firsts[0] == 0:
            begins[0] = self._edge[0]
        good = settled & has_begin & (begins["end_ns"] < ends["end_ns"])
        if not settled.any():
            return None
        done = int(np.flatnonzero(settled)[-1])
        through, edge = int(firsts[done]) + period - 1, ends[done : done + 1]
        numbers = mine["seq"][firsts] // period
        numbers, begins, ends = numbers[good], begins[good], ends[good]
        cut = None
        if len(numbers):
            rows = self._between(begins[0], ends[-1])
            if not self._usual.take(rows, begins, ends, self._sizes):
                return None
            begins = self._less_foreign(rows, begins, ends, mine[firsts[good]])
            cut = self._cut(numbers, begins, ends, rows)
        self._edge_seq = int(mine["seq"][through])
        self._drop(edge)
        return cut

    def _less_foreign(self, rows: Rows, begins: Rows, ends: Rows, firsts: Rows) -> Rows:
        """Begin a step after what does not belong to it: an evaluation by another group."""
        foreign = rows[self._usual.work.foreign(rows)]
        if not len(foreign):
            return begins
        step = np.searchsorted(ends["end_ns"], foreign["end_ns"], side="left")
        inside = step < len(ends)
        foreign, step = foreign[inside], step[inside]
        early = (foreign["end_ns"] > begins["end_ns"][step]) & (
            foreign["end_ns"] <= firsts["start_ns"][step]
        )
        begins = begins.copy()
        for row, place in zip(foreign[early], step[early].tolist(), strict=True):
            begins[place] = row
        return begins

    def _look_for_pattern(self) -> None:
        """Learn, check early on, and learn anew what no longer holds."""
        if self._seen < self._next_try:
            return
        if self._pattern is not None and self._seen > _SETTLED:
            # Held is what no step has taken up.
            steps, least = _GIVE_UP
            if len(self._held) < max(least, min(steps * self._usual.rows, _MAX_HELD)):
                return
        self._next_try = max(int(min(self._seen, _MAX_HELD) * (_TRY_AGAIN - 1)), 1) + self._seen
        self._learn()

    def _learn(self) -> None:
        self._past = [np.concatenate(self._past)]
        pattern = find_pattern(self._past[0], self._sizes)
        if pattern is None or pattern == self._pattern:
            return
        self._pattern, self._usual = pattern, UsualWork()
        self._changes += 1
        self._edge, self._edge_seq = _NO_STEP, -1

    def _after_odd(self, end_ns: int) -> None:
        """Go on behind a collective that is unlike all others, where only pauses tell the steps."""
        self._held = self._held[self._held["end_ns"] > end_ns]
        if self._edge_seq < 0:
            return
        # The loop may go on at another place in the burst.
        self._past, self._past_rows, self._pattern = [self._held], len(self._held), None
        self._next_try = self._seen + 1
        self._edge, self._edge_seq = _NO_STEP, -1
        self._changes -= 1

    def _paced(self) -> Rows:
        assert self._pattern is not None
        if self._pattern.communicator == P2P_TRACK:
            mine: Rows = self._held[self._held["kind"] == OpKind.P2P]
            return mine
        here = self._held["communicator"] == self._pattern.communicator
        mine = self._held[here & (self._held["kind"] == OpKind.COLLECTIVE)]
        return mine

    def _unbroken(self, seqs: Ints) -> int:
        """How many may be used: two threads may finish the later collective first."""
        holes = np.flatnonzero(np.diff(seqs) > 1)
        if len(holes) and len(seqs) - int(holes[0]) < _AHEAD:
            return int(holes[0]) + 1
        if self._edge_seq >= 0 and len(seqs) and seqs[0] > self._edge_seq + 1:
            return 0 if len(seqs) < _AHEAD else len(seqs)
        return len(seqs)

    def _between(self, begin: Rows, end: Rows) -> Rows:
        """What ended after one boundary and not after the other, by end."""
        at = self._held["end_ns"]
        rows = self._held[(at > begin["end_ns"]) & (at <= end["end_ns"])]
        ordered: Rows = rows[np.argsort(rows["end_ns"], kind="stable")]
        return ordered

    def _drop(self, edge: Rows) -> None:
        self._edge = edge.copy()
        self._held = self._held[self._held["end_ns"] > edge["end_ns"][0]]

    def _cut(self, numbers: Ints, begins: Rows, ends: Rows, rows: Rows) -> SegmentedSteps:
        key = self._usual.work.peers_key
        return SegmentedSteps(numbers.astype(np.int64), begins, ends, rows, self._marked, key)


def _greedy(may_begin: Flags, period: int) -> Ints:
    """Places at which steps of this length begin: the earliest that do not overlap."""
    candidates = np.flatnonzero(may_begin)
    firsts: list[int] = []
    place = 0
    while place < len(candidates):
        firsts.append(int(candidates[place]))
        place = int(np.searchsorted(candidates, firsts[-1] + period))
    return np.array(firsts, dtype=np.int64)
