"""Takes what the recorder of one running rank holds, again and again, into a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from relkit.errors import BadDump
from relkit.hook import layout
from relkit.hook.events import EventReader
from relkit.hook.model import OpKind
from relkit.hook.traced_calls import names_in
from relkit.hook.work_rings import WorkReader
from relkit.straggler.collect.event_rows import HookMeaning, event_rows
from relkit.straggler.collect.step_segmenter import StepSegmenter
from relkit.timeline.call_rows import CallRows
from relkit.timeline.model import STEP, Hook, Lost, RankIdentity, Rows, no_steps
from relkit.timeline.recording_file import RecordingWriter

# On another node the recording may have begun so much earlier: what the ring still holds of that is
# taken along, or the two would share no operations.
LEAD_NS = 30 * 10**9
_KINDS = {int(kind): kind for kind in OpKind}


class RankRecorder:
    """Call begin(), look() often, then end().

    Args:
        path: recorder file of the rank.
        identity: whose it is, with the clock of this host.
        from_now: leave out what had ended before, but for the lead.
        clock: CLOCK_MONOTONIC, ns.

    Raises:
        BadDump: the recorder file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        identity: RankIdentity,
        *,
        from_now: bool,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock, self._from_ns = clock, clock() if from_now else 0
        self._events = EventReader(path)
        try:
            self._work = WorkReader(path)
        except BadDump:
            self._events.close()
            raise
        if from_now:
            self._work.skip()
        self._before = (self._work.finished(), self._work.small(), self._work.unrecorded())
        self._calls = CallRows(names_in(path.parent), self._events.names)
        self._meaning = HookMeaning.of(self._events.names, self._events.kinds)
        self._segmenter = StepSegmenter()
        self._first = True
        self._lost_events, self._communicated, self._worked = 0, 0, 0
        self.identity = identity
        # Steps that have begun and ended since the recording began.
        self.steps_seen = 0
        self._writer: RecordingWriter | None = None

    def begin(self, stream: IO[bytes]) -> None:
        """Write to this file from now on."""
        hooks = tuple(
            Hook(name, _KINDS.get(kind, OpKind.KERNEL))
            for name, kind in zip(self._events.names, self._events.kinds, strict=True)
        )
        hooks += self._calls.hooks
        begin_ns = max(0, self._from_ns - LEAD_NS)
        self._writer = RecordingWriter(stream, self.identity, hooks, begin_ns)

    @property
    def fill(self) -> float:
        """Share of a ring that was new at the last look."""
        return self._work.fill

    def look(self) -> None:
        """Take what is new.

        Raises:
            BadDump: the recorder's file has become shorter.
        """
        assert self._writer is not None, "begin() comes first"
        work = self._work.drain()
        batch = self._events.drain()
        self._worked += len(work)
        events = batch.rows
        # The first look finds what was before, which is no loss.
        lost = 0 if self._first else batch.lost
        self._lost_events += lost
        rows = events[list(layout.OP.names or ())].astype(layout.OP)
        rows = rows[rows["end_ns"] >= max(0, self._from_ns - LEAD_NS)]
        new = rows["hook"][rows["end_ns"] >= self._from_ns]
        self._communicated += int(np.isin(new, self._communication()).sum())
        self._writer.rows(np.concatenate([self._calls.named(rows), work]))
        steps = self._cut_steps(events, lost)
        self.steps_seen += int((steps["begin_ns"] >= self._from_ns).sum())
        self._writer.steps(steps)
        self._first = False

    def _communication(self) -> Rows:
        kinds = self._meaning.kinds
        numbers: Rows = np.flatnonzero((kinds == OpKind.COLLECTIVE) | (kinds == OpKind.P2P))
        return numbers

    def _cut_steps(self, events: Rows, lost: int) -> Rows:
        groups = self._events.communicators()
        rows = event_rows(events, self._meaning, groups, self._events.pid)
        if not len(rows) and not lost:
            return no_steps()
        cut = self._segmenter.feed(rows, groups, lost=lost)
        if cut is None:
            return no_steps()
        steps = np.empty(len(cut.numbers), STEP)
        steps["number"] = cut.numbers
        steps["begin_ns"], steps["end_ns"] = cut.begins["end_ns"], cut.ends["end_ns"]
        steps["exact"] = cut.exact
        kept: Rows = steps[steps["begin_ns"] >= self._from_ns - LEAD_NS]
        return kept

    def end(self) -> Lost:
        """Write what is in flight, and what is missing; let go of the recorder's file."""
        assert self._writer is not None, "begin() comes first"
        finished, small, unrecorded = self._before
        self._writer.rows(self._work.in_flight())
        work = 0
        if self._from_ns:
            known = self._worked + self._communicated + self._lost_events
            work = max(0, self._work.finished() - finished - known)
        lost = Lost(
            self._lost_events + self._writer.refused,
            work,
            self._work.unrecorded() - unrecorded if self._from_ns else unrecorded,
            self._work.small() - small if self._from_ns else small,
        )
        self._writer.end(self._clock(), self._events.communicators(), lost)
        self.close()
        return lost

    def close(self) -> None:
        """Let go of the recorder's file."""
        self._events.close()
        self._work.close()
