"""What one rank has in shared memory: its folder, its file of slots, and who saves into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import memory_loader, slot_folder
from relkit.flash_checkpoint.errors import BadSlot, NoRoom, SlotFault
from relkit.flash_checkpoint.memory_saver import NEW_SUFFIX, MemorySaver, SaveHandle
from relkit.flash_checkpoint.native_copy import CopyPool
from relkit.flash_checkpoint.slot_file import SlotFile, WholeSlot


class RankMemory:
    """The slots of this rank; where there can be none, saves fail, and say why.

    Args:
        rank, world_size: of this process.
        threads: that copy; None: half of this rank's share of the processors, at least one.
    """

    def __init__(self, rank: int, world_size: int, threads: int | None) -> None:
        self._threads = threads or default_threads()
        self._own: slot_folder.OwnFolder | None = None
        self._saver: MemorySaver | None = None
        self._failure: RelkitError | None = None
        self._file: SlotFile | None = None
        self._lock: slot_folder.RankLock | None = None
        try:
            folder = slot_folder.of_launcher()
            if folder is None:
                self._own = slot_folder.make(os.environ.get("TORCHELASTIC_RUN_ID", "job"))
                folder = self._own.path
            self._path = slot_folder.slots_path(folder, rank)
            self._owner = slot_folder.owner(folder, rank, world_size)
            self._saver = MemorySaver(self._path, self._owner, self._threads)
        except RelkitError as error:
            self._failure = error

    def save(
        self, step: int, state: object, then: Callable[[SlotFile, WholeSlot], None] | None = None
    ) -> SaveHandle:
        """As `MemorySaver.save`, with the want of room in the handle.

        Raises:
            NotPlain: something in the state cannot be saved.
        """
        handle = SaveHandle(step)
        if self._saver is None:
            handle.end(self._failure)
            return handle
        try:
            if self._lock is None:
                self._lock = slot_folder.RankLock(self._path)
                # Of a process that was killed before its first larger state was safe.
                self._path.with_suffix(NEW_SUFFIX).unlink(missing_ok=True)
            return self._saver.save(step, state, then)
        except (UnwritablePath, NoRoom) as error:
            handle.end(error)
        except OSError as error:
            handle.end(UnwritablePath(f"cannot write {self._path}: {error.strerror}"))
        return handle

    def slots(self) -> tuple[dict[int, WholeSlot], list[str]]:
        """The whole slots by step, and why others are not used."""
        if self._saver is None:
            return {}, [str(self._failure)]
        refused: list[str] = []
        try:
            self._file = SlotFile.open(self._path, self._owner)
        except FileNotFoundError:
            return {}, []
        except BadSlot as error:
            return {}, [] if error.fault is SlotFault.EMPTY else [str(error)]
        except OSError as error:
            return {}, [f"{self._path}: {error.strerror}"]
        for index in range(self._file.count):
            try:
                self._file.header(index)
            except BadSlot as error:
                if error.fault is not SlotFault.EMPTY:
                    refused.append(f"slot {index}: {error}")
        # Of two saves of one step the later one is last here, and stays.
        return {slot.header.step: slot for slot in reversed(self._file.whole())}, refused

    def load(self, slot: WholeSlot) -> tuple[Any, str]:
        """The state in a slot of `slots`, or why it is not used."""
        assert self._file is not None
        pool = CopyPool(self._threads)
        try:
            return memory_loader.load(self._file, slot, pool), ""
        except BadSlot as error:
            return None, str(error)
        finally:
            pool.close()

    def adopt(self, sequence: int | None) -> None:
        """As `MemorySaver.adopt`."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._saver is not None:
            self._saver.adopt(sequence)

    def close(self) -> None:
        """Wait for what is under way."""
        if self._saver is not None:
            self._saver.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def remove_own(self) -> None:
        """Remove the slots, where no launcher keeps them."""
        if self._own is not None:
            self._own.remove()
            self._own = None


def default_threads() -> int:
    """Half of this rank's share of the processors, at least one."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return max(1, min(8, len(os.sched_getaffinity(0)) // (2 * max(1, local))))
