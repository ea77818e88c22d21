"""Flash checkpoints for DistributedDataParallel, under the names of DLRover's.

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType

checkpointer = DdpCheckpointer(folder)
state = checkpointer.load_checkpoint()
...
checkpointer.save_checkpoint(step, state_dict, path, storage_type=StorageType.MEMORY)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from relkit.accounting.worker_notes import Load, noted_load
from relkit.checkpoint.torch_file import read_plain
from relkit.flash_checkpoint.checkpointer import Checkpointer
from relkit.flash_checkpoint.choice import Choice
from relkit.flash_checkpoint.on_disk import disk, saved_on_disk
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.storage_type import StorageType
from relkit.flash_checkpoint.write_slot import write_slot

__all__ = ("DdpCheckpointer", "StorageType")


class DdpCheckpointer(Checkpointer):
    """Saves and restores a job in which every rank has the whole state.

    In memory each rank keeps its own state, random generators included. On disk there is rank 0's.

    Args:
        checkpoint_dir, threads: as of Checkpointer.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def load_checkpoint(self, resume_path: str | os.PathLike[str] = "") -> dict[str, Any]:
        """The newest state that all ranks have, from memory or from disk.

        Every rank must call it. It waits for saves that are under way. Rank 0 prints one line to
        stderr that names what was loaded, and a newer step that could not be saved.

        Args:
            resume_path: a file to load instead.

        Returns:
            the state; {} where nothing was saved.

        Raises:
            BadInputFile: the file on disk is damaged, holds more than plain data, or is not seen by
                all ranks.
            DeadlineExceeded: a save is still under way after half an hour.
            RelkitError: the ranks do not answer each other.
        """
        if resume_path:
            self._wait_for_own_saves()
            self._memory.adopt(None)
            return _as_dict(read_plain(Path(resume_path), arrays=True))
        return self.load_newer(-1, "")

    def load_newer(self, step: int, what: str) -> dict[str, Any]:
        """As load_checkpoint, for a loop that has saved a step to disk by itself.

        Args:
            step: of the loop's own checkpoint, the same on all ranks; -1: it has none.
            what: its name, for the line that says what is loaded.

        Returns:
            the state; {} where none is newer than the loop's own, or nothing was saved.

        Raises:
            BadInputFile, DeadlineExceeded, RelkitError: as of load_checkpoint.
        """
        with noted_load() as load:
            choice = self._choose()
            if choice.step > step or step < 0:
                return self._load(choice, load)
            load.step, load.source = step, "disk"
        self._memory.adopt(None)
        self._announce(f"{what} is the newest step")
        return {}

    def _load(self, choice: Choice, load: Load) -> dict[str, Any]:
        load.step = choice.step
        if choice.step < 0:
            self._announce(f"nothing was saved: training begins{choice.why_not_memory}")
            return {}
        load.source = "memory" if choice.saved is None else "disk"
        if choice.saved is None:
            self._announce(f"step {choice.step} {choice.origin}")
            return _as_dict(choice.state)
        ranks = saved_on_disk.of_other_ranks(choice.saved, self._ranks.world_size)
        state = saved_on_disk.read(choice.saved, self._ranks.rank, self._ranks.world_size)
        where = f"{choice.saved.path}{ranks}"
        self._announce(f"step {choice.step} from {where}{choice.why_not_memory}")
        return _as_dict(state)

    def _writes_to_disk(self) -> bool:
        return self._ranks.rank == 0

    def _name_on_disk(self, step: int) -> str:
        return f"checkpoint-{step}.pt"

    def _part_of_rank(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return state_dict

    def _write_slot(
        self, step: int, path: Path, save: SaveHandle, whole: list[tuple[SlotFile, WholeSlot]]
    ) -> None:
        save.wait()
        ((file, slot),) = whole
        try:
            write_slot(file, slot, path, self._root)
        finally:
            file.unlock(slot.index)

    def _write_state(self, step: int, path: Path, state: dict[str, Any]) -> None:
        disk.write(state, path, step, self._root)


def _as_dict(state: object) -> dict[str, Any]:
    return state if isinstance(state, dict) else {"state": state}
