"""The settings that `relkit straggler tune` asks for, as the launcher of node 0 reads them."""

from __future__ import annotations

from pathlib import Path

from relkit.errors import BadInputFile
from relkit.launch.job.settings import Log
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Control


class ControlFile:
    """In a job's folder; what cannot be read is refused, once, and changes nothing.

    Args:
        job_dir: the job's shared-memory folder; log: one line to the terminal.
    """

    def __init__(self, job_dir: Path, log: Log) -> None:
        self._job_dir, self._log = job_dir, log
        self._mark = 0
        self._refused = ""

    @property
    def has_changed(self) -> bool:
        """Other settings have been asked for since the last read()."""
        return self._mark != control.mark(self._job_dir)

    def read(self, settings: Control) -> Control:
        """The settings that are asked for; those that hold where nobody has asked."""
        self._mark = control.mark(self._job_dir)
        try:
            asked = control.read(self._job_dir, settings)
        except BadInputFile as error:
            if str(error) != self._refused:
                self._refused = str(error)
                self._log(f"settings not taken: {error}")
            return settings
        self._refused = ""
        return asked
