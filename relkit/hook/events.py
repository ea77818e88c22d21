"""Follows what a process finishes: every collective, send, receive and mark, each once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.errors import BadDump
from relkit.files.private_file import open_private
from relkit.hook import layout
from relkit.hook.model import Communicator
from relkit.hook.reader import communicators_of, hooks_of
from relkit.hook.state_file import Rows, StateFile, check, read_header
from relkit.process.identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class EventBatch:
    """What finished since the last look.

    Args:
        rows: layout.EVENT, in the order in which they ended.
        lost: how many were overwritten, or torn by a process that was killed, before they could
            be read.
    """

    rows: Rows
    lost: int


class EventReader:
    """Reads one recorder's event ring again and again; the process notices nothing of it.

    Args:
        path: a recorder file.

    Raises:
        BadDump: it is none, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            self._descriptor = open_private(path)
        except OSError as error:
            raise BadDump(f"{path.name}: {error.strerror}") from error
        try:
            header = read_header(self._descriptor, path.name)
            check(header, os.fstat(self._descriptor).st_size, path.name)
            self._file = StateFile(self._descriptor, path.name, header)
            self.names, self.kinds = hooks_of(self._file)
        except (BadDump, OSError) as error:
            os.close(self._descriptor)
            if isinstance(error, OSError):
                raise BadDump(f"{path.name}: {error.strerror}") from error
            raise
        self.pid, self.rank = int(header["pid"]), int(header["rank"])
        self.world_size = int(header["world_size"])
        ticks, namespace = int(header["start_ticks"]), int(header["pid_namespace"])
        self.identity = ProcessIdentity(self.pid, ticks, namespace)
        self.boot_to_unix_ns = int(header["anchor_realtime_ns"]) - int(
            header["anchor_monotonic_ns"]
        )
        self._count = int(header["event_count"])
        self._begun_at = layout.offset_of(layout.HEADER, "events_begun")
        self._next = 0

    def drain(self) -> EventBatch:
        """What is new since the last call.

        An event that is being written stays for the next call, and so does what is behind it.

        Raises:
            BadDump: the file has become shorter.
        """
        try:
            return self._drain()
        except OSError as error:
            raise BadDump(f"{self._name}: {error.strerror}") from error

    def _drain(self) -> EventBatch:
        begun = self._file.word(self._begun_at)
        first = max(self._next, begun - self._count)
        lost = first - self._next
        if begun <= first:
            return EventBatch(np.empty(0, layout.EVENT), lost)
        rows = self._file.events(first, begun - first)
        after = self._file.word(self._begun_at)
        # What may have been overwritten while it was copied is gone.
        safe = max(first, after - self._count)
        wanted = np.arange(first, begun, dtype=np.uint64) + np.uint64(1)
        whole = (rows["ticket"] == wanted) & (wanted > safe)
        # One not yet written ends the batch, unless so many came after it that its writer is dead.
        open_ends = np.flatnonzero((rows["ticket"] < wanted) & (wanted > safe))
        end = len(rows)
        if len(open_ends) and begun - first - int(open_ends[0]) < self._count // 2:
            end = int(open_ends[0])
        self._next = first + end
        kept = rows[:end][whole[:end]]
        return EventBatch(kept, lost + end - len(kept))

    def communicators(self) -> tuple[Communicator, ...]:
        """The process groups that are known by now, by index."""
        return communicators_of(self._file)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
