"""Owns the slots of this node's ranks, over all restarts, until the launcher ends."""

from __future__ import annotations

from collections.abc import Collection

from relkit.errors import UnwritablePath
from relkit.flash_checkpoint import slot_folder
from relkit.launch.job.settings import Log


class SlotHost:
    """The folder of slots of one launcher; it stays empty if the job saves nothing in memory.

    Args:
        log: writes one line to the terminal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._folder: slot_folder.OwnFolder | None = None
        self._tried = False

    def begin(self, job_id: str, ranks: Collection[int]) -> dict[str, str]:
        """Begin an attempt of the job.

        Args:
            job_id: of the launcher.
            ranks: that this node has in this attempt. Slots of other ranks are removed: if such a
                rank came back to this node later, it would find an outdated state.

        Returns:
            what to add to the workers' environment; nothing if shared memory cannot be written:
            workers then save to disk only.
        """
        if not self._tried:
            self._tried = True
            try:
                self._folder = slot_folder.make(job_id)
            except UnwritablePath as error:
                self._log(f"{error}")
        if self._folder is None:
            return {}
        slot_folder.keep_only(self._folder.path, ranks)
        return {slot_folder.FOLDER_VARIABLE: str(self._folder.path)}

    def close(self) -> None:
        """The job has ended: remove the slots."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
