"""Writes the history of a job: often while somebody watches it, seldom otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from relkit.errors import UnwritablePath
from relkit.files.private_file import open_own_folder
from relkit.output import as_json, write_atomic
from relkit.straggler.present.report import straggler_report
from relkit.straggler.transport import live_file
from relkit.straggler.transport.history import History, save
from relkit.straggler.transport.locate import KEPT_FILE, LIVE_FILE

# Where the evidence is kept for which a node had to leave.
EXCLUDED = "excluded"
# Between two writings of the file for `watch`, while somebody watches and while nobody does. It
# grows with the job: its writing takes no more than such a share of a core.
_WATCHED_EVERY_S, _WATCHED_SHARE = 1.0, 0.01
_SELDOM_EVERY_S, _SELDOM_SHARE = 10.0, 0.001


class HistoryPublisher:
    """Call look_for_readers() before it is asked whether a history is due.

    Args:
        job_dir: folder of the file for `watch`; timeline: folder that keeps the evidence.
    """

    def __init__(self, job_dir: Path, timeline: Path) -> None:
        self._job_dir, self._timeline = job_dir, timeline
        self._next_s = 0.0
        # Somebody watches the job.
        self.is_watched = False

    @property
    def is_called(self) -> bool:
        """Somebody has come to watch since the last look_for_readers()."""
        return live_file.is_asked(self._job_dir) and not self.is_watched

    def look_for_readers(self) -> None:
        """A reader that has just come is served at once."""
        asked = live_file.is_asked(self._job_dir)
        if asked and not self.is_watched:
            self._next_s = 0.0
        self.is_watched = asked

    def is_due(self, now_s: float) -> bool:
        """It is time to publish again; now_s: monotonic time, s."""
        return now_s >= self._next_s

    def publish(
        self, make_history: Callable[[], History], now_s: float, *, keep: bool = False
    ) -> None:
        """Write the file for `watch`.

        Args:
            make_history: its time counts as well; now_s: monotonic time, s.
            keep: in the timeline folder too, with the report.

        Raises:
            UnwritablePath: shared memory or the timeline is full; what could be was written.
        """
        began_s = time.monotonic()
        history = make_history()
        # Where one place is full, the other is written all the same, and the next time is set.
        try:
            save(history, self._job_dir / LIVE_FILE)
        finally:
            try:
                if keep:
                    _keep(history, self._timeline / KEPT_FILE.parent)
            finally:
                self._set_next(now_s, began_s)

    def _set_next(self, now_s: float, began_s: float) -> None:
        took_s = time.monotonic() - began_s
        every_s, share = (
            (_WATCHED_EVERY_S, _WATCHED_SHARE)
            if self.is_watched
            else (_SELDOM_EVERY_S, _SELDOM_SHARE)
        )
        self._next_s = now_s + took_s + max(every_s, took_s / share)

    def keep_exclusion(self, history: History) -> None:
        """Write down for what a node has to leave."""
        _keep(history, self._timeline / KEPT_FILE.parent / EXCLUDED)


def _keep(history: History, folder: Path) -> None:
    # The timeline folder may be shared: whatever is not a folder of this user's is not written to.
    for part in (folder.parent, folder) if folder.name == EXCLUDED else (folder,):
        try:
            part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(open_own_folder(part))
        except OSError as error:
            raise UnwritablePath(f"cannot write to {part}: {error.strerror}") from error
    save(history, folder / KEPT_FILE.name)
    write_atomic(folder / "report.json", as_json(straggler_report(history)))
