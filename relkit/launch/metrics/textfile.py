"""The text file that node_exporter reads: one a launcher, whole or not there."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from relkit.launch.metrics.settings import MOST_EVERY_S, MetricsSettings
from relkit.output import write_atomic
from relkit.text.job_id import safe_job_id

_PREFIX, _SUFFIX = "relkit-", ".prom"
# What a launcher that was killed has left is told as if it were of now.
_LEFT_AFTER_S = 2 * MOST_EVERY_S
# A file that somebody else has called so has no number of a process.
_OF_LAUNCHER = re.compile(r"-\d+\.prom\Z", re.ASCII)
_PRIVATE, _PUBLIC = 0o600, 0o644


class TextFile:
    """Call write() with each new text, and remove() when the launcher ends.

    Args:
        settings: folder and mode.
        job_id: of the launcher; host: this node's name, as nodes may share the folder.
    """

    def __init__(self, settings: MetricsSettings, job_id: str, host: str) -> None:
        self._folder = settings.folder
        self._mode = _PUBLIC if settings.is_public else _PRIVATE
        # The process tells launchers of one job on one host apart.
        name = f"{safe_job_id(job_id)[:60]}-{safe_job_id(host)[:60]}-{os.getpid()}"
        self.path = self._folder / f"{_PREFIX}{name}{_SUFFIX}"
        self._has_swept = False

    def write(self, text: bytes) -> None:
        """Replace the file.

        Raises:
            UnwritablePath: the folder is gone, read-only or full.
        """
        if not self._has_swept:
            self._has_swept = True
            self._sweep()
        write_atomic(self.path, text, mode=self._mode)

    def remove(self) -> None:
        """A file that stays would be told as if the job ran on."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what launchers of this user have left that were killed."""
        before_s = time.time() - _LEFT_AFTER_S
        with suppress(OSError):
            for path in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"):
                with suppress(OSError):
                    status = path.lstat()
                    is_ours = _OF_LAUNCHER.search(path.name) and status.st_uid == os.geteuid()
                    if is_ours and status.st_mtime < before_s:
                        path.unlink()
