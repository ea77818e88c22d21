"""Follows what the threads of a process compute: products, kernels, memory calls and waits.

These are no events: each thread keeps its newest 64 operations in a ring of its own, so whoever
wants all of them looks often.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from relkit.errors import BadDump
from relkit.hook import layout
from relkit.hook.model import OpKind
from relkit.hook.reader import hooks_of
from relkit.hook.state_file import Rows, StateFile, open_state_file

_WORK = (OpKind.GEMM, OpKind.KERNEL, OpKind.MEMORY, OpKind.WAIT)
_FINISHED_AT = layout.offset_of(layout.SLOT, "finished")
_FLIGHT_SEQ_AT = layout.offset_of(layout.SLOT, "flight_seq")
_USED_AT = layout.offset_of(layout.HEADER, "slots_used")
_DROPPED_AT = layout.offset_of(layout.HEADER, "dropped")
_TRIES = 4


class WorkReader:
    """Reads one recorder's rings of threads again and again; the process notices nothing of it.

    Args:
        path: a recorder file.

    Raises:
        BadDump: it is none, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self._opened: AbstractContextManager[StateFile] = open_state_file(path)
        self._file = self._opened.__enter__()
        try:
            _, kinds = hooks_of(self._file)
        except BadDump:
            self.close()
            raise
        self._is_work = np.isin(kinds, [int(kind) for kind in _WORK])
        self._next: dict[int, int] = {}
        # Share of a ring that the last drain() found new; 1 and more: some was overwritten.
        self.fill = 0.0

    def skip(self) -> None:
        """Leave out what is there already."""
        for slot in range(self._slots_used()):
            self._next[slot] = self._word(slot, _FINISHED_AT)

    def drain(self) -> Rows:
        """Operations (layout.OP) that have finished since the last call, in no order."""
        parts: list[Rows] = [np.empty(0, layout.OP)]
        self.fill = 0.0
        for slot in range(self._slots_used()):
            finished = self._word(slot, _FINISHED_AT)
            before = self._next.get(slot, 0)
            if finished <= before:
                continue
            if before:
                self.fill = max(self.fill, (finished - before) / layout.RING_LENGTH)
            parts.append(self._ring(slot, before, finished))
            self._next[slot] = finished
        rows = np.concatenate(parts)
        known = rows[rows["hook"] < len(self._is_work)]
        work: Rows = known[self._is_work[known["hook"]]]
        return work

    def finished(self) -> int:
        """How many operations of all kinds the rings have held since the process started."""
        return sum(self._word(slot, _FINISHED_AT) for slot in range(self._slots_used()))

    def small(self) -> int:
        """How many products were too small to be timed."""
        at = layout.offset_of(layout.SLOT, "counted")
        return sum(self._word(slot, at) for slot in range(self._slots_used()))

    def unrecorded(self) -> int:
        """How many operations and events have found no room in the recorder."""
        return self._file.word(_DROPPED_AT)

    def in_flight(self) -> Rows:
        """Operations that have not returned, of all kinds; their `end_ns` is 0."""
        flights = []
        for slot in range(self._slots_used()):
            for _ in range(_TRIES):
                before = self._word(slot, _FLIGHT_SEQ_AT)
                row = self._file.rows(self._at(slot), layout.SLOT, 1)[0]
                if before % 2 == 0 and before == self._word(slot, _FLIGHT_SEQ_AT):
                    flights.append(row["flight"])
                    break
        rows = np.array(flights, layout.OP) if flights else np.empty(0, layout.OP)
        rows["end_ns"] = 0
        flying: Rows = rows[(rows["start_ns"] > 0) & (rows["hook"] < len(self._is_work))]
        return flying

    def close(self) -> None:
        """Let go of the file."""
        self._opened.__exit__(None, None, None)

    def _ring(self, slot: int, before: int, finished: int) -> Rows:
        ring = self._file.rows(self._at(slot), layout.SLOT, 1)[0]["ring"]
        after = self._word(slot, _FINISHED_AT)
        length = layout.RING_LENGTH
        # The entry after the newest may be half written at any time, hence the + 1.
        oldest = max(before, finished - length, after - length + 1)
        rows: Rows = ring[np.arange(oldest, max(oldest, finished)) % length]
        return rows

    def _slots_used(self) -> int:
        return min(self._file.word(_USED_AT), int(self._file.header["slot_count"]))

    def _at(self, slot: int) -> int:
        return int(self._file.header["slots_at"]) + slot * layout.SLOT.itemsize

    def _word(self, slot: int, offset: int) -> int:
        return self._file.word(self._at(slot) + offset)
