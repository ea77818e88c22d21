"""The files of several ranks' slots, kept open while somebody looks into them again and again."""

from __future__ import annotations

from pathlib import Path

from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.slot_file import SlotFile


class RankFiles:
    """Opens a rank's file when it is first asked for, and again when it is another one.

    Args:
        folder: of the slots; world_size: ranks of the job.
    """

    def __init__(self, folder: Path, world_size: int) -> None:
        self._folder, self._world_size = folder, world_size
        # With inode and size of the file: a state that grows has a new one.
        self._files: dict[int, tuple[tuple[int, int], SlotFile]] = {}

    def of(self, rank: int) -> SlotFile:
        """A rank's file as it is now, open for reading; it must not be closed by the caller.

        Raises:
            BadSlot: it is not a file of slots of this rank and job.
            OSError: it does not exist, or other users may read or write it.
        """
        path = slot_folder.slots_path(self._folder, rank)
        try:
            status = path.stat()
        except OSError:
            self._drop(rank)
            raise
        mark = status.st_ino, status.st_size
        held = self._files.get(rank)
        if held is not None and held[0] == mark:
            return held[1]
        # First: a file that was replaced has its memory as long as it is open here.
        self._drop(rank)
        file = SlotFile.open(path, slot_folder.owner(self._folder, rank, self._world_size))
        self._files[rank] = mark, file
        return file

    def _drop(self, rank: int) -> None:
        held = self._files.pop(rank, None)
        if held is not None:
            held[1].close()
