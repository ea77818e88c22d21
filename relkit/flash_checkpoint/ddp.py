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
from relkit.flash_checkpoint import disk, saved_on_disk
from relkit.flash_checkpoint.persisted import Persisted
from relkit.flash_checkpoint.rank_group import group_of_job
from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.save_handle import WAIT_S, SaveHandle
from relkit.flash_checkpoint.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.storage_type import StorageType
from relkit.flash_checkpoint.write_slot import write_slot

__all__ = ("DdpCheckpointer", "StorageType")
_MAX_REASONS = 5


class DdpCheckpointer:
    """Saves and restores a job in which every rank has the whole state.

    In memory each rank keeps its own state, random generators included. On disk there is rank 0's.

    Args:
        checkpoint_dir: folder of the checkpoints on disk; it is made if it is missing.
        threads: native threads that copy on each rank; None: half of this rank's share of the
            processors.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def __init__(self, checkpoint_dir: str | os.PathLike[str], threads: int | None = None) -> None:
        self._root = Path(checkpoint_dir)
        self._ranks = group_of_job()
        self._memory = RankMemory(self._ranks.rank, self._ranks.world_size, threads, self._root)
        self._memory_save = SaveHandle.ended(-1)
        self._disk_save = SaveHandle.ended(-1)
        self._reported: set[str] = set()
        atexit.register(self.close)

    def save_checkpoint(
        self,
        step: int,
        state_dict: dict[str, Any],
        path: str | os.PathLike[str] = "",
        storage_type: StorageType = StorageType.DISK,
    ) -> SaveHandle:
        """Save the state as it is now; the loop may go on at once.

        What only optimizers change is copied while the loop runs, and the next step of an optimizer
        waits for the copy. Everything else is copied before this returns. If a save fails, the
        handle has the reason, each kind of reason is printed to stderr once, and training goes on.

        Args:
            step: 0 or more.
            state_dict: tensors, arrays, plain values and containers of them.
            path: of the file on disk; "": checkpoint-STEP.pt in the folder.
            storage_type: MEMORY or DISK. DISK waits for the previous save to disk.

        Returns:
            a handle; its `wait()` returns when the state is in memory, or on disk for DISK.

        Raises:
            NotPlain: the state holds objects that are neither tensors nor plain values.
            DeadlineExceeded: the previous save is still under way after half an hour.
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
            save.on_failure(self._report)
            return save
        if save.done and save.failure is not None:
            # There is no room in memory: written from the tensors, while the loop waits.
            self._report(save.failure)
            self._disk_save = SaveHandle.ended(step, self._write(state_dict, target, step))
        else:
            self._disk_save = SaveHandle(step)
            arguments = (save, whole, target, self._disk_save)
            threading.Thread(
                target=self._write_later, args=arguments, name="relkit-flash-disk", daemon=True
            ).start()
        return self._disk_save

    def load_checkpoint(self, resume_path: str | os.PathLike[str] = "") -> dict[str, Any]:
        """The newest state that all ranks have, from memory or from disk.

        Every rank must call it. Rank 0 prints one line to stderr that names what was loaded.

        Args:
            resume_path: a file to load instead.

        Returns:
            the state; {} where nothing was saved.

        Raises:
            BadInputFile: the file on disk is damaged, holds more than plain data, or is not seen by
                all ranks.
            RelkitError: the ranks do not answer each other.
        """
        if resume_path:
            self._memory.adopt(None)
            return _as_dict(read_plain(Path(resume_path), arrays=True))
        on_disk = self._on_disk() if self._ranks.rank == 0 else {"disk": -1}
        slots, reasons = self._memory.slots()
        while True:
            offers = self._ranks.all_gather({"steps": sorted(slots), **on_disk})
            common = set.intersection(*(set(offer["steps"]) for offer in offers))
            step = max(common, default=-1)
            if step < 0 or step < offers[0]["disk"]:
                break
            state, why = self._memory.load(slots[step])
            refusals = self._ranks.all_gather(why)
            if not any(refusals):
                self._memory.adopt(slots[step].header.sequence)
                self._announce(f"step {step} from memory")
                return _as_dict(state)
            reasons += [f"rank {rank}: {reason}" for rank, reason in enumerate(refusals) if reason]
            del slots[step]
        return self._from_disk(offers, reasons)

    def _on_disk(self) -> dict[str, Any]:
        """The newest step on disk, -1 for none; its kind; and why it cannot be read."""
        try:
            saved = saved_on_disk.newest(self._root)
        except BadInputFile as error:
            return {"disk": -1, "is_persisted": False, "unreadable": str(error)}
        step = -1 if saved is None else saved.step
        return {
            "disk": step, "is_persisted": isinstance(saved, Persisted), "unreadable": ""
        }  # fmt: skip

    def _from_disk(self, offers: list[dict[str, Any]], reasons: list[str]) -> dict[str, Any]:
        if offers[0]["unreadable"]:
            raise BadInputFile(
                offers[0]["unreadable"], next_step="Load a file: load_checkpoint(path)."
            )
        self._memory.adopt(None)
        if offers[0]["disk"] < 0:
            self._announce("nothing was saved: training begins" + _because(reasons))
            return {}
        saved = saved_on_disk.require(
            self._root, offers[0]["disk"], is_persisted=offers[0]["is_persisted"]
        )
        state = saved_on_disk.read(saved, self._ranks.rank, self._ranks.world_size)
        newest = [max(offer["steps"], default=-1) for offer in offers]
        if max(newest) > saved.step:
            reasons.append(
                f"no step in memory is on all {len(offers)} ranks"
                f" (newest on rank {newest.index(max(newest))}: {max(newest)})"
            )
        self._announce(f"step {saved.step} from {saved.path}" + _because(reasons))
        return _as_dict(state)

    def wait_latest_checkpoint(self, timeout: float = WAIT_S) -> None:
        """Wait for the saves under way, as at the end of a job.

        Args:
            timeout: for the save into memory, and again for the one to disk, s.

        Raises:
            RelkitError: the last save to disk failed; failed saves into memory do not raise.
            DeadlineExceeded: a save is still under way.
        """
        self._memory_save.wait_end(timeout)
        self._disk_save.wait(timeout)

    def close(self) -> None:
        """Wait for the saves under way, and end the threads. Also called when the process exits."""
        atexit.unregister(self.close)
        self._memory.close()
        self._disk_save.wait_end()
        self._memory.remove_own()

    def _write(self, state: object, path: Path, step: int) -> RelkitError | None:
        try:
            disk.write(state, path, step, self._root)
        except RelkitError as error:
            self._report(error)
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
                file.unlock(slot.index)
        except Exception as error:  # noqa: BLE001  the handle has it, and the loop goes on
            failure = error
            self._report(error)
        handle.end(failure)

    def _report(self, error: Exception) -> None:
        # Once: a job that saves at every step would print little else.
        kind = type(error).__name__
        if kind not in self._reported:
            self._reported.add(kind)
            print(f"relkit: flash checkpoint: rank {self._ranks.rank}: {error}", file=sys.stderr)

    def _announce(self, line: str) -> None:
        if self._ranks.rank == 0:
            print(f"relkit: flash checkpoint: {line}", file=sys.stderr)


def _because(reasons: list[str]) -> str:
    return f"; memory is not used: {'; '.join(reasons[:_MAX_REASONS])}" if reasons else ""


def _as_dict(state: object) -> dict[str, Any]:
    return state if isinstance(state, dict) else {"state": state}
