"""Keeps the slots of this node's ranks for as long as the launcher lives, over all restarts."""

from __future__ import annotations

from collections.abc import Collection

from relkit.errors import UnwritablePath
from relkit.flash_checkpoint import slot_folder
from relkit.launch.job.settings import Log


class SlotHost:
    """The folder of slots of one launcher; a job that saves nothing in memory has an empty one.

    Args:
        log: writes one line to the terminal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._folder: slot_folder.OwnFolder | None = None
        self._tried = False

    def begin(self, job_id: str, ranks: Collection[int]) -> dict[str, str]:
        """What to add to the environment of the workers of an attempt.

        Args:
            job_id: as the launcher knows it.
            ranks: that this node has now. What others have left here is removed: were one of them
                to come back, it would find a state that the job has long gone past.

        Returns:
            nothing where shared memory is closed: workers then save to disk only.
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
        """The job is over: shared memory is memory."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
