"""What all checkpointers of training loops do alike: save in memory, and from there to disk."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from relkit.errors import DeadlineExceeded, RelkitError
from relkit.flash_checkpoint import process_memory
from relkit.flash_checkpoint.choice import Check, Choice, choose
from relkit.flash_checkpoint.rank_group import group_of_job
from relkit.flash_checkpoint.save_handle import WAIT_S, SaveHandle, own_saves
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.storage_type import StorageType

# How much later than another rank rank 0 may begin the same save to disk, s. What ranks decide each
# for itself ("my best loss"), rank 0 may never begin.
_BEGIN_S = 60.0


class Checkpointer(ABC):
    """Saves and restores the states of this rank.

    Args:
        checkpoint_dir: folder of the checkpoints on disk; it is made if it is missing.
        threads: native threads that copy on each rank; None: half of this rank's share of the
            processors.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def __init__(self, checkpoint_dir: str | os.PathLike[str], threads: int | None = None) -> None:
        self._root, self._pid = Path(checkpoint_dir), os.getpid()
        self._ranks = group_of_job()
        ranks = self._ranks
        self._memory = process_memory.take(ranks.rank, ranks.world_size, threads, self._root)
        self._memory_save = SaveHandle.ended(-1)
        self._disk_save = SaveHandle.ended(-1)
        # Calls for a save to disk, which all ranks make alike.
        self._disk_calls = 0
        self._own_saves = own_saves(self._root)
        self._reported: set[str] = set()
        self._is_closed = False
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
            path: of the file or folder on disk; "": named after the step, in the folder.
            storage_type: MEMORY or DISK. DISK waits for the previous save to disk.

        Returns:
            a handle; its `wait()` returns when the state is in memory, or on disk for DISK.

        Raises:
            NotPlain: the state holds objects that are neither tensors nor plain values.
            DeadlineExceeded: the previous save is still under way after half an hour.
        """
        target = Path(path) if path else self._root / self._name_on_disk(step)
        if storage_type is not StorageType.DISK:
            handle = self._save_in_memory(step, state_dict)
        else:
            self._disk_calls += 1
            if self._writes_to_disk():
                handle = self._save_to_disk(step, state_dict, target)
            else:
                handle = self._save_in_memory(step, state_dict)
        self._own_saves.add(handle)
        return handle

    def _save_in_memory(self, step: int, state_dict: dict[str, Any]) -> SaveHandle:
        self._memory_save = self._memory.save(step, self._part_of_rank(state_dict))
        self._memory_save.on_failure(self._report)
        return self._memory_save

    def _save_to_disk(self, step: int, state_dict: dict[str, Any], target: Path) -> SaveHandle:
        whole: list[tuple[SlotFile, WholeSlot]] = []
        try:
            self._disk_save.wait_end()
            state = self._part_of_rank(state_dict)
            save = self._memory.save(step, state, lambda *slot: whole.append(slot))
        except BaseException:
            self._note_on_disk(_begun_on_disk(self._disk_calls))
            self._note_on_disk(_ended_on_disk(self._disk_calls))
            raise
        self._memory_save = save
        self._disk_save = SaveHandle(step)
        number = self._disk_calls
        if save.done and save.failure is not None:
            # There is no room in memory: written from the tensors, while the loop waits.
            self._report(save.failure)
            self._write(self._disk_save, number, target, save, whole, state)
        else:
            threading.Thread(
                target=self._write,
                args=(self._disk_save, number, target, save, whole),
                name="relkit-flash-disk",
                daemon=True,
            ).start()
        return self._disk_save

    @abstractmethod
    def _writes_to_disk(self) -> bool:
        """Whether this rank takes part in saves to disk."""

    @abstractmethod
    def _name_on_disk(self, step: int) -> str:
        """What a step is called on disk, unless the loop says so."""

    @abstractmethod
    def _part_of_rank(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """What this rank keeps of a state, as plain data."""

    @abstractmethod
    def _write_slot(
        self, step: int, path: Path, save: SaveHandle, whole: list[tuple[SlotFile, WholeSlot]]
    ) -> None:
        """Write to disk what is being saved into a slot.

        Args:
            save: under way; whole: has the slot, locked, when the save has ended well.
        """

    @abstractmethod
    def _write_state(self, step: int, path: Path, state: dict[str, Any]) -> None:
        """Write to disk what has no room in memory."""

    def _write(
        self,
        handle: SaveHandle,
        number: int,
        path: Path,
        save: SaveHandle,
        whole: list[tuple[SlotFile, WholeSlot]],
        state: dict[str, Any] | None = None,
    ) -> None:
        self._note_on_disk(_begun_on_disk(number))
        failure: Exception | None = None
        try:
            if state is None:
                self._write_slot(handle.step, path, save, whole)
            else:
                self._write_state(handle.step, path, state)
        except Exception as error:  # noqa: BLE001  the handle has it, and the loop goes on
            failure = error
            self._report(error)
        # First the note: whoever has waited for the handle may end the process.
        self._note_on_disk(_ended_on_disk(number))
        handle.end(failure)

    def _note_on_disk(self, name: str) -> None:
        """Rank 0 has begun a save to disk, or its part of it is done, well or not."""
        if self._ranks.rank == 0:
            with suppress(RelkitError):  # at the end of a job its store may be gone
                self._ranks.put(name, value=True)

    def _wait_for_own_saves(self) -> None:
        """Before a file or folder is loaded by its name: it may be the one that is being saved.

        The other ranks need not call it. A forked child waits for nothing: the threads that save
        are its parent's, and so is the connection to the store.

        Raises:
            DeadlineExceeded: a save is still under way after half an hour.
        """
        if not self._is_own:
            return
        waited = self._own_saves.wait_end(WAIT_S)
        if waited.late:
            raise DeadlineExceeded(waited.late, next_step="It goes on; load again later.")
        if self._ranks.rank != 0 and self._disk_calls:
            # Rank 0 publishes what all have written, or writes for all. A job whose store is gone
            # is about to end.
            with suppress(RelkitError):
                # It does not begin one before it has ended the one before.
                for number in range(max(1, self._disk_calls - 1), self._disk_calls + 1):
                    self._ranks.wait_for(_begun_on_disk(number), 0, _BEGIN_S)
                    self._ranks.wait_for(_ended_on_disk(number), 0, WAIT_S)

    def _choose(self, check: Check | None = None) -> Choice:
        """What all ranks resume from, once their saves have ended. Every rank must call it.

        Args:
            check: of a state in memory; see choice.py.
        """
        return choose(self._ranks, self._memory, self._root, self._own_saves, check)

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
        # In a forked child there is nothing to wait for: the saving threads are not in it.
        if self._is_own and not self._is_closed:
            self._is_closed = True
            try:
                with suppress(DeadlineExceeded):
                    self._memory_save.wait_end()
                self._disk_save.wait_end()
            finally:
                process_memory.give_back(self._memory)

    @property
    def _is_own(self) -> bool:
        """Whether this process has made it, and was not forked since."""
        return os.getpid() == self._pid

    def _report(self, error: Exception) -> None:
        # Once: a job that saves at every step would print little else.
        kind = type(error).__name__
        if kind not in self._reported:
            self._reported.add(kind)
            print(f"relkit: flash checkpoint: rank {self._ranks.rank}: {error}", file=sys.stderr)

    def _announce(self, line: str) -> None:
        if self._ranks.rank == 0:
            print(f"relkit: flash checkpoint: {line}", file=sys.stderr)


def _begun_on_disk(number: int) -> str:
    return f"disk/{number}/begun"


def _ended_on_disk(number: int) -> str:
    return f"disk/{number}"
