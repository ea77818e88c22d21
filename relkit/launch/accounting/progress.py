"""Follows one rank's recorder: the first operation between ranks, the first step, the newest."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.errors import BadDump
from relkit.hook.events import EventReader
from relkit.hook.model import OpKind
from relkit.hook.reader import state_files
from relkit.hook.state_file import Rows
from relkit.launch.job.settings import LocalRank

# A rank that a script has started has a recorder under another number: so often is it looked for.
_SEARCH_S = 1.0
_STEP = "step"


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A step began.

    Args:
        number: that its loop gave it, 0 or more; at_s: monotonic clock.
    """

    number: int
    at_s: float


class Progress:
    """Of one attempt; what is read is never believed to be outside of it.

    Args:
        job_dir: folder of the recorder files; rank: that is followed.
        since_s: when its workers were started, monotonic clock.
        clock: the same clock.
    """

    def __init__(
        self,
        job_dir: Path,
        rank: LocalRank,
        since_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job_dir, self._rank, self._since_s, self._clock = job_dir, rank, since_s, clock
        self._reader: EventReader | None = None
        self._is_step = self._is_operation = np.zeros(0, bool)
        self._search_s = 0.0
        self.operation_s: float | None = None
        self.first: StepSeen | None = None
        self.done_s: float | None = None
        self.last: StepSeen | None = None
        # When something between ranks was last finished, or a step begun.
        self.moved_s: float | None = None

    def look(self) -> None:
        """Take what is new; a recorder that cannot be read says nothing."""
        if self._reader is None and not self._open():
            return
        assert self._reader is not None
        try:
            events = self._reader.drain().rows
        except BadDump:
            self.close()
            return
        if len(events):
            self._take(events)

    def close(self) -> None:
        """Let go of the recorder file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> bool:
        reader = self._opened(self._job_dir / f"{self._rank.pid}.rkhook")
        now_s = self._clock()
        if reader is None and now_s - self._search_s >= _SEARCH_S:
            self._search_s = now_s
            for path in state_files(self._job_dir):
                reader = self._opened(path)
                # Helpers of a rank have recorders with its number, too, but talk to nobody.
                if reader is not None and reader.communicators():
                    break
                reader = None
        if reader is None:
            return False
        # The name of a mark's hook says which mark it is.
        kinds = np.array(reader.kinds, np.int64)
        named = np.array([name == _STEP for name in reader.names], bool)
        self._is_step = (kinds == OpKind.MARK) & named
        self._is_operation = (kinds == OpKind.COLLECTIVE) | (kinds == OpKind.P2P)
        self._reader = reader
        return True

    def _opened(self, path: Path) -> EventReader | None:
        with suppress(BadDump, OSError):
            reader = EventReader(path)
            if self._rank.pid == reader.pid or self._rank.rank == reader.rank:
                return reader
            reader.close()
        return None

    def _take(self, events: Rows) -> None:
        hook = events["hook"].astype(np.int64)
        end_ns = events["end_ns"].astype(np.float64)
        is_sane = (hook < len(self._is_step)) & (end_ns / 1e9 >= self._since_s)
        is_sane &= end_ns / 1e9 <= self._clock()
        events, hook = events[is_sane], hook[is_sane]
        operations = events[self._is_operation[hook]]
        steps = events[self._is_step[hook]]
        steps = steps[steps["seq"] >= 0]
        if len(operations):
            first_s = int(operations["end_ns"].min()) / 1e9
            self.operation_s = first_s if self.operation_s is None else self.operation_s
            self._move(int(operations["end_ns"].max()) / 1e9)
        for row in (steps[:2], steps[-1:]):
            for step in row:
                self._step(StepSeen(int(step["seq"]), int(step["end_ns"]) / 1e9))

    def _step(self, step: StepSeen) -> None:
        if self.first is None:
            self.first = step
        elif self.done_s is None and step.at_s > self.first.at_s:
            self.done_s = step.at_s
        if self.last is None or step.number >= self.last.number:
            self.last = step
        self._move(step.at_s)

    def _move(self, at_s: float) -> None:
        self.moved_s = at_s if self.moved_s is None else max(self.moved_s, at_s)
