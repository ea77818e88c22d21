"""What is noted of one attempt while its workers run: how far they are, each thing once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from relkit.accounting.attempts import COUNTED
from relkit.accounting.journal import Journal
from relkit.accounting.records import Record, What
from relkit.accounting.worker_notes import is_counted, read_load, read_total
from relkit.launch.accounting.progress import Progress
from relkit.launch.job.settings import LocalRank

# While workers start, each look at them is of use; later, only the newest step is.
_QUICK_S, _SLOW_S = 0.1, 2.0
_NOW_S = 5.0
# Steps that are kept to show the rate of the last half minute.
_SHOWN = 6


class AttemptNotes:
    """Of the first rank of this node; `progress` is what was seen of it.

    Args:
        journal: where it goes.
        job_dir: of the recorders; rank: that is followed.
        begun_s: when its workers began to be started, monotonic clock.
        clock: the same clock.
    """

    def __init__(
        self,
        journal: Journal,
        job_dir: Path,
        rank: LocalRank,
        begun_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = Progress(job_dir, rank, begun_s, clock)
        self._journal, self._job_dir, self._rank = journal, job_dir, rank.rank
        self._begun_s, self._clock = begun_s, clock
        self._noted: set[What] = set()
        self._look_s, self._now_s = 0.0, begun_s
        self._shown: deque[Record] = deque(maxlen=_SHOWN)

    def look(self) -> bool:
        """See how far the workers are; False where it was too early for another look."""
        now_s = self._clock()
        due_s = _QUICK_S if self.progress.done_s is None else _SLOW_S
        if now_s - self._look_s < due_s:
            return False
        self._look_s = now_s
        self.progress.look()
        self._note()
        if now_s - self._now_s >= _NOW_S:
            self._now_s = now_s
            self._put_now(now_s)
        return True

    def _put_now(self, now_s: float) -> None:
        last = self._last_step()
        if last is not None and (not self._shown or last.number > self._shown[-1].number):
            self._shown.append(last)
        steps = (self._shown[0], self._shown[-1]) if len(self._shown) > 1 else tuple(self._shown)
        self._journal.put_now(*steps, Record(What.ALIVE, now_s, time.time()))

    def close(self) -> None:
        """The workers are stopped, or have ended: note how far they had come."""
        self.progress.look()
        self.progress.close()
        self._note()
        last = self._last_step()
        if last is not None:
            self._journal.add(What.LAST_STEP, last.at_s, number=last.number)

    def newest(self) -> tuple[Record, ...]:
        """The newest step as a record, where there is one."""
        last = self._last_step()
        return () if last is None else (last,)

    def _note(self) -> None:
        progress = self.progress
        if progress.operation_s is not None:
            self._add_once(What.OPERATION, progress.operation_s)
        if progress.first is not None and What.FIRST_STEP not in self._noted:
            self._note_load()
            is_ours = is_counted(self._job_dir, self._rank, self._begun_s)
            first = progress.first
            name = COUNTED if is_ours else ""
            self._add_once(What.FIRST_STEP, first.at_s, number=first.number, name=name)
        if progress.done_s is not None and What.STEP_DONE not in self._noted:
            self._add_once(What.STEP_DONE, progress.done_s)
            total = read_total(self._job_dir, self._rank, self._begun_s)
            if total is not None:
                self._add_once(What.TOTAL, progress.done_s, number=total)

    def _note_load(self) -> None:
        load = read_load(self._job_dir, self._rank)
        if load is not None and load.begin_s >= self._begun_s:
            self._add_once(
                What.LOAD,
                load.end_s,
                seconds=load.end_s - load.begin_s,
                number=load.step,
                text=load.source,
            )

    def _last_step(self) -> Record | None:
        last = self.progress.last
        if last is None or last == self.progress.first:
            return None
        unix_s = time.time() - (self._clock() - last.at_s)
        return Record(What.LAST_STEP, last.at_s, unix_s, number=last.number)

    def _add_once(self, what: What, at_s: float, **members: object) -> None:
        if what not in self._noted:
            self._noted.add(what)
            self._journal.add(what, at_s, **members)
