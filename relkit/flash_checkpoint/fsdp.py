"""Flash checkpoints for FSDP and `fully_shard`, under the names of DLRover's.

from relkit.flash_checkpoint.fsdp import FsdpShardCheckpointer, StorageType

checkpointer = FsdpShardCheckpointer(folder)
storage_reader = checkpointer.get_storage_reader()
...
checkpointer.save_checkpoint(step, state_dict, path, storage_type=StorageType.MEMORY)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.storage import StorageReader

from relkit.checkpoint.manifest import FileRecord
from relkit.errors import RelkitError
from relkit.flash_checkpoint.folder_checkpointer import FolderCheckpointer
from relkit.flash_checkpoint.on_disk import sharded_on_disk
from relkit.flash_checkpoint.save_handle import WAIT_S
from relkit.flash_checkpoint.sharded.disk_reader import DiskReader
from relkit.flash_checkpoint.sharded.memory_reader import MemoryReader
from relkit.flash_checkpoint.sharded.part import contents, is_sharded
from relkit.flash_checkpoint.sharded.part_file import write_part
from relkit.flash_checkpoint.sharded.take_apart import take_apart
from relkit.flash_checkpoint.storage_type import StorageType

__all__ = ("FsdpShardCheckpointer", "StorageType")


class FsdpShardCheckpointer(FolderCheckpointer):
    """Saves and restores a job in which every rank has a part of the state.

    In memory each rank keeps its own part, with its own plain values. On disk there is a folder in
    the format of torch.distributed.checkpoint (DCP), written by all ranks; of what several ranks
    have under one name, the first one's.

    Args:
        checkpoint_dir: folder of the checkpoints on disk, which all ranks share.
        threads: as of Checkpointer.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def get_storage_reader(self, resume_path: str | os.PathLike[str] = "") -> StorageReader | None:
        """A reader of the newest state that all ranks have, for DCP's `load`.

        Every rank must call it. It waits for saves that are under way. Rank 0 prints one line to
        stderr that names what is loaded, and a newer step that could not be saved.

        Args:
            resume_path: a folder in DCP's format to load instead, by relkit or not.

        Returns:
            the reader; None where nothing was saved.

        Raises:
            BadInputFile: what is on disk is damaged, or not seen by all ranks.
            DeadlineExceeded: a save is still under way after half an hour.
            RelkitError: the ranks do not answer each other.
        """
        if resume_path:
            self._wait_for_own_saves()
            self._memory.adopt(None)
            return DiskReader(Path(resume_path))
        choice = self._choose()
        if choice.step < 0:
            self._announce(f"nothing was saved: training begins{choice.why_not_memory}")
            return None
        if choice.saved is not None:
            folder = sharded_on_disk.folder_of(choice.saved)
            ranks = sharded_on_disk.resharding(folder, self._ranks.world_size)
            self._announce(f"step {choice.step} from {folder}{ranks}{choice.why_not_memory}")
            return DiskReader(folder)
        own = contents(choice.state) if is_sharded(choice.state) else None
        parts = self._ranks.all_gather(own)
        if None in parts:
            raise RelkitError(
                f"step {choice.step} in memory was not saved by an FsdpShardCheckpointer",
                next_step="Load it with the checkpointer that has saved it.",
            )
        # Which of them it is, the division of the model that is loaded decides.
        return MemoryReader(
            choice.state,
            parts,
            from_disk=partial(self._from_disk, choice.step),
            begun=partial(self._announce, f"step {choice.step} {choice.origin}"),
        )

    def _from_disk(self, step: int, why: str) -> StorageReader | None:
        """What is read where a step in memory cannot be; every rank calls it."""
        self._memory.adopt(None)
        choice = self._choose()
        if choice.saved is None:
            return None
        folder = sharded_on_disk.folder_of(choice.saved)
        self._announce(
            f"step {choice.step} from {folder}, which torch reshards; step {step} in memory is not"
            f" used: {why}"
        )
        return DiskReader(folder)

    def _name_on_disk(self, step: int) -> str:
        return str(step)

    def _part_of_rank(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return take_apart(state_dict)

    def _write_files(self, state: dict[str, Any], folder: Path) -> Sequence[FileRecord]:
        return [write_part(state, folder, self._ranks.rank)]

    def _publish(
        self,
        folder: Path,
        path: Path,
        step: int,
        files: Sequence[FileRecord],
        facts: Mapping[str, int],
    ) -> None:
        sharded_on_disk.publish(folder, path, step, self._root, files, facts, WAIT_S)
