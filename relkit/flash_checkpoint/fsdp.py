"""Flash checkpoints for FSDP and `fully_shard`, under the names of DLRover's.

from relkit.flash_checkpoint.fsdp import FsdpShardCheckpointer, StorageType

checkpointer = FsdpShardCheckpointer(folder)
storage_reader = checkpointer.get_storage_reader()
...
checkpointer.save_checkpoint(step, state_dict, path, storage_type=StorageType.MEMORY)
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.storage import StorageReader

from relkit.checkpoint.manifest import FileRecord
from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import persist_slots
from relkit.flash_checkpoint.checkpointer import Checkpointer
from relkit.flash_checkpoint.on_disk import sharded_on_disk
from relkit.flash_checkpoint.persist_slots import Written
from relkit.flash_checkpoint.save_handle import WAIT_S, SaveHandle
from relkit.flash_checkpoint.sharded.disk_reader import DiskReader
from relkit.flash_checkpoint.sharded.memory_reader import MemoryReader
from relkit.flash_checkpoint.sharded.part import contents, is_sharded
from relkit.flash_checkpoint.sharded.part_file import write_part
from relkit.flash_checkpoint.sharded.take_apart import take_apart
from relkit.flash_checkpoint.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.storage_type import StorageType

__all__ = ("FsdpShardCheckpointer", "StorageType")


class FsdpShardCheckpointer(Checkpointer):
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

    def __init__(self, checkpoint_dir: str | os.PathLike[str], threads: int | None = None) -> None:
        super().__init__(checkpoint_dir, threads)
        self._disk_saves = 0

    def get_storage_reader(self, resume_path: str | os.PathLike[str] = "") -> StorageReader | None:
        """A reader of the newest state that all ranks have, for DCP's `load`.

        Every rank must call it. Rank 0 prints one line to stderr that names what is loaded.

        Args:
            resume_path: a folder in DCP's format to load instead, by relkit or not.

        Returns:
            the reader; None where nothing was saved.

        Raises:
            BadInputFile: what is on disk is damaged, or not seen by all ranks.
            RelkitError: the ranks do not answer each other.
        """
        if resume_path:
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
        self._announce(f"step {choice.step} from memory")
        return MemoryReader(choice.state, parts)

    def close(self) -> None:
        """As Checkpointer's; then no rank waits any longer for this one to save."""
        try:
            super().close()
        finally:
            if self._is_own:
                self._ranks.retire()

    def _writes_to_disk(self) -> bool:
        return True

    def _name_on_disk(self, step: int) -> str:
        return str(step)

    def _part_of_rank(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return take_apart(state_dict)

    def _write_slot(
        self, step: int, path: Path, save: SaveHandle, whole: list[tuple[SlotFile, WholeSlot]]
    ) -> None:
        number, folder = self._begin(path)
        saved_unix_ns = 0
        try:
            save.wait()
            ((file, slot),) = whole
            saved_unix_ns = slot.header.saved_unix_ns
            try:
                written = persist_slots.persist_slots([(file, slot)], folder, 0.0, WAIT_S)
            finally:
                file.unlock(slot.index)
        except Exception as error:  # noqa: BLE001  rank 0 has it, which would wait for this rank
            written = _failed(error)
        self._end(number, step, folder, path, written, saved_unix_ns)

    def _write_state(self, step: int, path: Path, state: dict[str, Any]) -> None:
        saved_unix_ns = time.time_ns()
        number, folder = self._begin(path)
        try:
            written = Written((write_part(state, folder, self._ranks.rank),))
        except Exception as error:  # noqa: BLE001  rank 0 has it, which would wait for this rank
            written = _failed(error)
        self._end(number, step, folder, path, written, saved_unix_ns)

    def _begin(self, path: Path) -> tuple[int, Path]:
        """The number of this save to disk, and the folder that rank 0 has made for it.

        Raises:
            UnwritablePath: it could not be made.
            RelkitError: rank 0 does not save.
        """
        self._disk_saves += 1
        number = self._disk_saves
        if self._ranks.rank == 0:
            try:
                begun = {"folder": str(sharded_on_disk.begin(path)), "problem": ""}
            except UnwritablePath as error:
                begun = {"folder": "", "problem": str(error)}
            self._ranks.put(f"{number}/begun", begun)
        else:
            begun = self._ranks.wait_for(f"{number}/begun", 0, WAIT_S)
        if begun["problem"]:
            raise UnwritablePath(begun["problem"])
        return number, Path(begun["folder"])

    def _end(
        self, number: int, step: int, folder: Path, path: Path, written: Written, saved_unix_ns: int
    ) -> None:
        """Tell rank 0 what was written; rank 0 publishes the folder when all ranks have done so.

        Raises:
            UnwritablePath: the checkpoint is not on disk; the message says why.
            RelkitError: a rank does not save.
        """
        rank, name = self._ranks.rank, f"{number}/written"
        self._ranks.put(f"{name}/{rank}", persist_slots.to_plain(written))
        if rank != 0:
            if written.problem:
                raise UnwritablePath(f"step {step} is not on disk: {written.problem}")
            return
        try:
            files: list[FileRecord] = []
            for other in range(self._ranks.world_size):
                answer = self._ranks.wait_for(f"{name}/{other}", other, WAIT_S)
                by_rank = persist_slots.from_plain(answer)
                if by_rank.problem:
                    raise UnwritablePath(
                        f"step {step} is not on disk: rank {other}: {by_rank.problem}",
                        next_step=by_rank.next_step or "The previous checkpoint is intact.",
                    )
                files += by_rank.files
            facts = {"world_size": self._ranks.world_size, "saved_unix_ns": saved_unix_ns}
            sharded_on_disk.publish(folder, path, step, self._root, files, facts, WAIT_S)
        except BaseException:
            sharded_on_disk.abandon(folder)
            raise


def _failed(error: Exception) -> Written:
    next_step = error.next_step if isinstance(error, RelkitError) else ""
    return Written(problem=str(error) or type(error).__name__, next_step=next_step)
