"""Writes what happens to this launcher's job into the history, in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relkit.accounting.records import Record, What
from relkit.history.findings_of_nodes import events_of
from relkit.history.model import Event
from relkit.history.place import HistoryBusy, NoHistory, history_folder
from relkit.launch.history.kept_reports import KeptReports
from relkit.launch.history.named_nodes import NamedBefore
from relkit.launch.history.record_events import event_of
from relkit.launch.job.exchange import Mailbox
from relkit.launch.job.node_name import node_name
from relkit.launch.job.settings import Log

# Reports in the timeline folder are looked for so often, s.
LOOK_S = 10.0
# The longest that a launcher waits at its end for the disk.
CLOSE_S = 3.0
# How often node 0 looks for what other nodes tell of themselves.
_TELL_LOOK_S = 1.0
_MAX_WAITING = 1000


class HistoryKeeper:
    """Never raises and never waits, but for close(): a history that fails is one line.

    Args:
        timeline: the folder with this launcher's reports.
        log: writes one line to the terminal.
        folder: where the history is.
    """

    def __init__(
        self, timeline: Path, log: Log, folder: Callable[[], Path] = history_folder
    ) -> None:
        self._log, self._place = log, folder
        self._reports = KeptReports(timeline)
        self._host = node_name()
        self._job = self._run = ""
        self._of_nodes = 0
        self._waiting: deque[Event] = deque(maxlen=_MAX_WAITING)
        # Of the thread alone.
        self._unwritten: list[Event] = []
        self._before = NamedBefore(log)
        self._wake = threading.Event()
        self._closing = self._is_off = False
        self._thread = threading.Thread(target=self._work, name="relkit-history", daemon=True)

    def hear(self, record: Record) -> None:
        """A record was added to the journal."""
        if record.what is What.LAUNCHER:
            self._job, self._run = record.text, f"{self._host}:{os.getpid()}:{record.unix_s:.0f}"
            self._start()
        if record.what is What.ATTEMPT:
            self._of_nodes = record.nodes
        event = event_of(record, job=self._job, run=self._run, host=self._host)
        if event is not None and not self._is_off:
            self._waiting.append(event)
            self._wake.set()

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            # No more threads may be started: the job goes on with those that it has.
            self._give_up(error)

    def met(self, mailbox: Mailbox, host: str) -> None:
        """The nodes of an attempt have met.

        Args:
            mailbox: to them, for this alone; host: this node's name.
        """
        self._host = host
        self._before.met(mailbox, host)
        self._wake.set()

    def attempt_ends(self) -> None:
        """Workers are stopped: others have just written their reports."""
        self._wake.set()

    def close(self) -> None:
        """The launcher ends: wait, not for long, until all is written."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while not self._is_off:
            self._wake.wait(_TELL_LOOK_S if self._before.is_waiting else LOOK_S)
            self._wake.clear()
            is_last = self._closing
            try:
                self._look()
            except HistoryBusy as error:
                # It is tried again: what waits is kept, as far as there is room.
                if is_last:
                    self._give_up(error)
            # What a disk, a hostile file, a full machine or a Python without SQLite brings up in
            # here is nothing to the job.
            except (
                NoHistory,
                OSError,
                RuntimeError,
                MemoryError,
                ValueError,
                ImportError,
            ) as error:
                self._give_up(error)
            if is_last:
                return

    def _give_up(self, error: Exception) -> None:
        self._is_off = True
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        self._log(f"no history is kept of this job: {reason}")

    def _look(self) -> None:
        # Only here: a launcher that keeps none does not import it.
        from relkit.history import database

        folder = self._place()
        for plain in self._reports.new():
            self._waiting.extend(self._events(plain))
        while self._waiting:
            self._unwritten.append(self._waiting.popleft())
        del self._unwritten[:-_MAX_WAITING]
        if self._unwritten:
            database.write(folder, self._unwritten)
            self._unwritten.clear()
        self._before.look(folder, is_last=self._closing)

    def _events(self, plain: Mapping[str, Any]) -> tuple[Event, ...]:
        return events_of(
            plain, job=self._job, run=self._run, host=self._host, of_nodes=self._of_nodes
        )
