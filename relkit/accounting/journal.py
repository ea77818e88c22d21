"""A launcher's journal: it is only ever added to, and never in the way of the job."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from relkit.accounting import journal_folder
from relkit.accounting.records import VERSION, Record, What
from relkit.errors import RelkitError
from relkit.files.private_file import open_private
from relkit.log_lines import warning
from relkit.output import write_atomic
from relkit.process.shortage import is_shortage

# A restart takes about 1.3 kB (measured, docs/status.md): there is room for more than 340.
MAX_BYTES = 512 << 10
# Kept free for the end.
_END_BYTES = 4 << 10


class Journal:
    """Never raises and never waits: a journal that cannot be kept is one line, and no more.

    `is_full`: nothing more is kept but its end.

    Args:
        job_id: of the launcher.
        log: one line to the terminal.
        make: where the file is to be.
        on_record: gets each record as it is added; must neither raise nor wait.
    """

    def __init__(
        self,
        job_id: str,
        log: Callable[[str], None],
        make: Callable[[str], Path] = journal_folder.make,
        on_record: Callable[[Record], None] = lambda _record: None,
    ) -> None:
        self._log, self._on_record = log, on_record
        self._descriptor = -1
        self._size_bytes = 0
        self.is_full = False
        self._records: list[Record] = []
        self._path = Path()
        self._pid = os.getpid()
        try:
            self._path = make(job_id)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
            self._descriptor = open_private(self._path, flags)
        except OSError as error:
            self._give_up(error)
        self.add(What.LAUNCHER, name=socket.gethostname(), text=job_id, number=VERSION)

    @property
    def records(self) -> tuple[Record, ...]:
        """What was added, also where it could not be written."""
        return tuple(self._records)

    def add(self, what: What, at_s: float | None = None, **members: object) -> None:
        """Add a record.

        Args:
            at_s: when it was, by the monotonic clock; now where it is not given.
            members: of Record.
        """
        now_s, unix_s = time.monotonic(), time.time()
        at_s = now_s if at_s is None else at_s
        record = Record(what, at_s, unix_s - (now_s - at_s), **members)  # type: ignore[arg-type]
        # A figure that is made of it here is the one that a reader makes.
        record = record.rounded()
        self._on_record(record)
        is_end = what is What.ENDED
        room = MAX_BYTES if is_end else MAX_BYTES - _END_BYTES
        line = record.to_line()
        # Once full it stays so: a story with gaps would tell something that was not.
        if self._size_bytes + len(line) <= room and (is_end or not self.is_full):
            self._keep(record, line)
        elif not self.is_full:
            self.is_full = True
            full = Record(What.FULL, record.at_s, record.unix_s)
            self._keep(full, full.to_line())
            self._log("the journal of the job's restarts is full; later ones are not in it")

    def put_now(self, *records: Record) -> None:
        """Replace what the job is doing at present."""
        if self._descriptor < 0 or os.getpid() != self._pid:
            return
        path = self._path.with_suffix(journal_folder.NOW_SUFFIX)
        try:
            write_atomic(path, b"".join(record.to_line() for record in records))
        except RelkitError as error:
            # Without a free descriptor, what was there stays; records are written all the same.
            if not is_shortage(error):
                self._give_up(error)

    def close(self) -> None:
        """Let go of the file, which stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _keep(self, record: Record, line: bytes) -> None:
        self._records.append(record)
        begin_bytes, self._size_bytes = self._size_bytes, self._size_bytes + len(line)
        # A forked child has this object too.
        if self._descriptor < 0 or os.getpid() != self._pid:
            return
        try:
            if os.write(self._descriptor, line) < len(line):
                # Cut off: what followed would be joined to it.
                os.ftruncate(self._descriptor, begin_bytes)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError | RelkitError) -> None:
        with suppress(OSError):
            self.close()
        self._descriptor = -1
        reason = getattr(error, "strerror", None) or error
        self._log(warning(f"the job's restarts are not accounted for: {reason}"))
