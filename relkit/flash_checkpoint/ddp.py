"""Flash checkpoints for DistributedDataParallel, under the names of DLRover's.

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType

checkpointer = DdpCheckpointer(folder)
state = checkpointer.load_checkpoint()
...
checkpointer.save_checkpoint(step, state_dict, path, storage_type=StorageType.MEMORY)
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path
from typing import Any

from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile, RelkitError
from relkit.flash_checkpoint import disk
from relkit.flash_checkpoint.agreement import ranks_of_job
from relkit.flash_checkpoint.memory_saver import SaveHandle
from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.storage_type import StorageType
from relkit.flash_checkpoint.write_slot import write_slot

__all__ = ("DdpCheckpointer", "StorageType")
_WAIT_S = 1800.0


class DdpCheckpointer:
    """Saves and restores a job in which every rank has the whole state.

    Each rank keeps its own state in memory, random streams included. On disk there is rank 0's.

    Args:
        checkpoint_dir: folder of the checkpoints on disk; made where it is missing.
        threads: native threads that copy on each rank; None: half of this rank's share of the
            processors, at least one.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def __init__(self, checkpoint_dir: str | os.PathLike[str], threads: int | None = None) -> None:
        self._root = Path(checkpoint_dir)
        self._ranks = ranks_of_job()
        self._memory = RankMemory(self._ranks.rank, self._ranks.world_size, threads)
        self._memory_save = SaveHandle(-1)
        self._disk_save = SaveHandle(-1)
        self._memory_save.end()
        self._disk_save.end()
        self._said: set[str] = set()
        atexit.register(self.close)

    def save_checkpoint(
        self,
        step: int,
        state_dict: dict[str, Any],
        path: str | os.PathLike[str] = "",
        storage_type: StorageType = StorageType.DISK,
    ) -> SaveHandle:
        """Save the state as it is now; the loop may go on at once.

        What optimizers change is copied until the next step of one, which waits for the copy; all
        else is copied before this returns. A save that fails says so on stderr, once for each
        reason, and in the handle: training goes on.

        Args:
            step: 0 or more.
            state_dict: tensors, arrays, plain values and containers of them.
            path: of the file on disk; "": checkpoint-STEP.pt in the folder.
            storage_type: DISK waits for the save to disk before it.

        Returns:
            a handle; its `wait()` returns when the state is safe where it was to go.

        Raises:
            NotPlain: the state holds objects of classes, which no plain file can.
        """
        to_disk = storage_type is StorageType.DISK and self._ranks.rank == 0
        if to_disk:
            self._disk_save.wait_end()
        target = Path(path) if path else self._root / f"checkpoint-{step}.pt"
        whole: list[tuple[SlotFile, WholeSlot]] = []
        save = self._memory.save(
            step, state_dict, (lambda *slot: whole.append(slot)) if to_disk else None
        )
        self._memory_save = save
        if not to_disk:
            save.then(self._say)
            return save
        self._disk_save = SaveHandle(step)
        if save.done and save.failure is not None:
            # There is no room in memory: written from the tensors, while the loop waits.
            self._say(save.failure)
            self._disk_save.end(self._write(state_dict, target, step))
        else:
            arguments = (save, whole, target, self._disk_save)
            threading.Thread(
                target=self._write_later, args=arguments, name="relkit-flash-disk", daemon=True
            ).start()
        return self._disk_save

    def load_checkpoint(self, resume_path: str | os.PathLike[str] = "") -> dict[str, Any]:
        """The newest state that all ranks have: from memory if there is one, else from disk.

        Every rank must call it. What was chosen is said in one line on stderr by rank 0.

        Args:
            resume_path: a file to load instead.

        Returns:
            what was saved; {} where there is nothing.

        Raises:
            BadInputFile: the file on disk is damaged, or holds something else than plain data.
        """
        if resume_path:
            self._memory.adopt(None)
            return _as_dict(read_plain(Path(resume_path), arrays=True))
        on_disk, unreadable = self._on_disk() if self._ranks.rank == 0 else (-1, "")
        slots, reasons = self._memory.slots()
        while True:
            told = self._ranks.all_gather(
                {"steps": sorted(slots), "disk": on_disk, "unreadable": unreadable}
            )
            common = set.intersection(*(set(one["steps"]) for one in told))
            step = max(common, default=-1)
            if step < 0 or step < told[0]["disk"]:
                break
            state, why = self._memory.load(slots[step])
            everyone = self._ranks.all_gather(why)
            if not any(everyone):
                self._memory.adopt(slots[step].header.sequence)
                self._announce(f"step {step} from memory")
                return _as_dict(state)
            reasons += [f"rank {rank}: {reason}" for rank, reason in enumerate(everyone) if reason]
            del slots[step]
        return self._from_disk(told, reasons)

    def _on_disk(self) -> tuple[int, str]:
        """The step that the tracker names, -1 for none, and why it cannot be read."""
        try:
            found = disk.latest(self._root)
        except BadInputFile as error:
            return -1, str(error)
        return (-1 if found is None else found.step), ""

    def _from_disk(self, told: list[dict[str, Any]], reasons: list[str]) -> dict[str, Any]:
        if told[0]["unreadable"]:
            raise BadInputFile(
                told[0]["unreadable"], next_step="Name a file: load_checkpoint(path)."
            )
        self._memory.adopt(None)
        if told[0]["disk"] < 0:
            self._announce("nothing saved: training begins" + _because(reasons))
            return {}
        found = disk.latest(self._root)
        if found is None or found.step != told[0]["disk"]:
            raise RelkitError(
                f"rank {self._ranks.rank} does not see the checkpoint that rank 0 sees in"
                f" {self._root}",
                next_step="Save to a folder that all ranks share.",
            )
        state = disk.read(found)
        newest = [max(one["steps"], default=-1) for one in told]
        if max(newest) > found.step:
            reasons.append(
                f"no step in memory is on all {len(told)} ranks"
                f" (newest on rank {newest.index(max(newest))}: {max(newest)})"
            )
        self._announce(f"step {found.step} from {found.path}" + _because(reasons))
        return _as_dict(state)

    def wait_latest_checkpoint(self, timeout: float = _WAIT_S) -> None:
        """Wait for the saves under way, as at the end of a job.

        Args:
            timeout: of each of the two kinds, s.

        Raises:
            RelkitError: what was to go to disk has not, or it takes longer. Saves into memory that
                failed have said so, and are no reason to end.
        """
        self._memory_save.wait_end(timeout)
        self._disk_save.wait(timeout)

    def close(self) -> None:
        """Wait for what is under way, and end the threads; done at the end of the process too."""
        atexit.unregister(self.close)
        self._memory.close()
        self._disk_save.wait_end()
        self._memory.remove_own()

    def _write(self, state: object, path: Path, step: int) -> RelkitError | None:
        try:
            disk.write(state, path, step, self._root)
        except RelkitError as error:
            self._say(error)
            return error
        return None

    def _write_later(
        self,
        save: SaveHandle,
        whole: list[tuple[SlotFile, WholeSlot]],
        path: Path,
        handle: SaveHandle,
    ) -> None:
        failure: Exception | None = None
        try:
            save.wait()
            ((file, slot),) = whole
            try:
                write_slot(file, slot, path, self._root)
            finally:
                file.pinned.discard(slot.index)
        except Exception as error:  # noqa: BLE001  told, and by the handle; the loop goes on
            failure = error
            self._say(error)
        handle.end(failure)

    def _say(self, error: Exception) -> None:
        # Once: a job that saves at every step would write nothing else any more.
        kind = type(error).__name__
        if kind not in self._said:
            self._said.add(kind)
            print(f"relkit: flash checkpoint: rank {self._ranks.rank}: {error}", file=sys.stderr)

    def _announce(self, line: str) -> None:
        if self._ranks.rank == 0:
            print(f"relkit: flash checkpoint: {line}", file=sys.stderr)


def _because(reasons: list[str]) -> str:
    return f"; memory is not used: {'; '.join(reasons[:5])}" if reasons else ""


def _as_dict(state: object) -> dict[str, Any]:
    return state if isinstance(state, dict) else {"state": state}
