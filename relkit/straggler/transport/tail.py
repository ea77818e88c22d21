"""Reads a running job's history again whenever its launcher has written a new one."""

from __future__ import annotations

import time
from pathlib import Path

from relkit.errors import NoSuchProcess, RelkitError
from relkit.hook.owner import is_recorded
from relkit.straggler.transport import live_file
from relkit.straggler.transport.history import History, load
from relkit.straggler.transport.locate import LIVE_FILE, job_folders, jobs_here, refresh

# A launcher that was killed leaves its files; without any rank that lives the job is over.
_SILENT_S = 10.0


class HistoryTail:
    """One job on this host.

    Args:
        job_id: as its launcher prints it.

    Raises:
        NoSuchProcess: no such job is here.
        UsageProblem: the job id cannot be a folder name.
    """

    def __init__(self, job_id: str) -> None:
        folders = job_folders(job_id)
        if not folders:
            others = ", ".join(jobs_here()) or "none"
            raise NoSuchProcess(
                f"no job {job_id!r} runs on this host; those with steps: {others}",
                next_step="The launcher prints the job's id when it starts; run this on its first "
                "node. `relkit straggler report` reads what an ended job has left.",
            )
        self._path = self._choose(folders)
        # While nobody looked, it was written seldom.
        refresh(self._path.parent)
        self._seen = (0, 0)
        self._news_at_s = time.monotonic()
        self.history: History | None = None
        self.over = False

    @staticmethod
    def _choose(folders: tuple[Path, ...]) -> Path:
        written = [folder for folder in folders if (folder / LIVE_FILE).exists()]
        return (written or folders)[0] / LIVE_FILE

    @property
    def silent_s(self) -> float:
        """How long nothing new has come, s."""
        return time.monotonic() - self._news_at_s

    def poll(self) -> bool:
        """Whether there is a new history; it is in `history`, and `over` says that it is the last.

        Raises:
            BadDump: the file is no history of this version.
        """
        if self.over:
            return False
        live_file.ask(self._path.parent)
        try:
            status = self._path.stat()
        except FileNotFoundError:
            # The folder goes with the job's last launcher.
            self.over = not self._path.parent.is_dir() or self._is_left_over()
            return False
        mark = (status.st_mtime_ns, status.st_ino)
        if mark == self._seen:
            self.over = self._is_left_over()
            return False
        try:
            self.history = load(self._path)
        except RelkitError:
            if not self._path.exists():
                return False
            raise
        self._seen, self._news_at_s = mark, time.monotonic()
        self.over = self.history.ended
        return True

    def _is_left_over(self) -> bool:
        return self.silent_s >= _SILENT_S and not is_recorded(self._path.parent)
