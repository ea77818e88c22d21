"""What checkpointers do alike whose checkpoints on disk are folders, to which all ranks write."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relkit.checkpoint.manifest import FileRecord
from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import persist_slots
from relkit.flash_checkpoint.checkpointer import Checkpointer
from relkit.flash_checkpoint.on_disk import sharded_on_disk
from relkit.flash_checkpoint.persist_slots import Written
from relkit.flash_checkpoint.save_handle import WAIT_S, SaveHandle
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot


class FolderCheckpointer(Checkpointer):
    """Every rank writes its files from its slot, and rank 0 names the folder when all have done so.

    Args:
        checkpoint_dir: folder of the checkpoints on disk, which all ranks share.
        threads: as of Checkpointer.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def __init__(self, checkpoint_dir: str | os.PathLike[str], threads: int | None = None) -> None:
        super().__init__(checkpoint_dir, threads)
        self._disk_saves = 0

    @abstractmethod
    def _write_files(self, state: dict[str, Any], folder: Path) -> Sequence[FileRecord]:
        """Write what this rank has of a state into a folder that exists."""

    @abstractmethod
    def _publish(
        self,
        folder: Path,
        path: Path,
        step: int,
        files: Sequence[FileRecord],
        facts: Mapping[str, int],
    ) -> None:
        """Make a folder in which all ranks' files are the newest checkpoint. On rank 0.

        Args:
            folder: temporary; path: its final name.
            facts: for the manifest.
        """

    def close(self) -> None:
        """As Checkpointer's; then no rank waits any longer for this one to save."""
        try:
            super().close()
        finally:
            if self._is_own:
                self._ranks.retire()

    def _writes_to_disk(self) -> bool:
        return True

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
            written = Written(tuple(self._write_files(state, folder)))
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
            self._publish(folder, path, step, files, facts)
        except BaseException:
            sharded_on_disk.abandon(folder)
            raise


def _failed(error: Exception) -> Written:
    next_step = error.next_step if isinstance(error, RelkitError) else ""
    return Written(problem=str(error) or type(error).__name__, next_step=next_step)
