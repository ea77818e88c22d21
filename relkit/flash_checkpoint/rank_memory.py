"""The checkpoints of one rank in shared memory: its folder, its slots and its saver."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import destination, memory_loader
from relkit.flash_checkpoint.memory_saver import NEW_SUFFIX, MemorySaver
from relkit.flash_checkpoint.replicas import origin
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.errors import BadSlot, NoRoom, SlotFault
from relkit.flash_checkpoint.slots.native_copy import CopyPool
from relkit.flash_checkpoint.slots.other_ranks import others_of
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot


class RankMemory:
    """The slots of this rank. Where shared memory cannot be used, each save fails with the reason.

    Args:
        rank, world_size: of this process.
        threads: number of threads that copy; None: half of this rank's share of the processors.
        root: where the job keeps its checkpoints on disk; the launcher persists slots there.
        own: the folder of slots of a process without a launcher; None: a new one is made.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        threads: int | None,
        root: Path | None = None,
        own: slot_folder.OwnFolder | None = None,
    ) -> None:
        self._rank, self._root = rank, root
        self._threads = threads or default_threads()
        self._own = own
        self._saver: MemorySaver | None = None
        self._failure: RelkitError | None = None
        self._file: SlotFile | None = None
        self._lock: slot_folder.RankLock | None = None
        self._has_left_note = False
        try:
            folder = slot_folder.of_launcher()
            if folder is None:
                if self._own is None:
                    self._own = slot_folder.make(os.environ.get("TORCHELASTIC_RUN_ID", "job"))
                folder = self._own.path
            self._path = slot_folder.slots_path(folder, rank)
            self._owner = slot_folder.owner(folder, rank, world_size)
            others = others_of(folder, rank, world_size, _local_world_size())
            self._saver = MemorySaver(
                self._path, self._owner, self._threads, others, _local_world_size()
            )
        except RelkitError as error:
            self._failure = error

    @property
    def folder(self) -> Path | None:
        """Of the slots, in shared memory; None where it cannot be used."""
        return None if self._saver is None else self._path.parent

    def save(
        self,
        step: int,
        state: object,
        when_whole: Callable[[SlotFile, WholeSlot], None] | None = None,
    ) -> SaveHandle:
        """As `MemorySaver.save`; a lack of room is a failure of the handle.

        Raises:
            NotPlain: something in the state cannot be saved.
            DeadlineExceeded, UsageProblem: as `MemorySaver.save`.
        """
        if self._saver is None:
            return SaveHandle.ended(step, self._failure)
        try:
            if self._lock is None:
                self._lock = slot_folder.RankLock(self._path)
                # Left by a process that was killed while it saved its first state into a new file.
                self._path.with_suffix(NEW_SUFFIX).unlink(missing_ok=True)
            save = self._saver.save(step, state, when_whole)
            if not self._has_left_note and self._own is None and self._root is not None:
                # For the launcher, and only now: if nothing fits into memory, no mark is left on
                # disk either.
                self._has_left_note = True
                destination.leave(self._path.parent, self._rank, self._root)
            return save
        except (UnwritablePath, NoRoom) as error:
            return SaveHandle.ended(step, error)
        except OSError as error:
            reason = UnwritablePath(f"cannot write {self._path}: {error.strerror}")
            return SaveHandle.ended(step, reason)

    def slots(self) -> tuple[dict[int, WholeSlot], list[str]]:
        """The whole slots by step, and why other slots are not used."""
        if self._saver is None:
            return {}, [str(self._failure)]
        refused: list[str] = []
        if belongs_to := self._left_for_another_root():
            return {}, [f"a killed launcher left it, whose checkpoints are in {belongs_to}"]
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
        # Newest last, so that of two saves of the same step the later one is kept.
        return {slot.header.step: slot for slot in reversed(self._file.whole())}, refused

    def _left_for_another_root(self) -> Path | None:
        """Where the checkpoints on disk are that the slots belong to, if a launcher that was killed
        has left them, and this loop keeps its own elsewhere."""
        note = destination.read(self._path.parent, self._rank)
        if note is None or note.launcher == slot_folder.owner_of(self._path.parent):
            return None
        own = self._root.absolute() if self._root is not None else None
        return note.root if note.root != own else None

    def origin_of(self, step: int) -> str:
        """Where a step in memory comes from: "from memory", or from which replicas."""
        note = origin.read(self.folder)
        return note.words if note.step == step and note.words else "from memory"

    @property
    def why_no_replica(self) -> str:
        """Why the launchers have brought no replica into the slots; "" where there was no need."""
        why = origin.read(self.folder).why_not
        return f"replicas are not used: {why}" if why else ""

    def load(self, slot: WholeSlot) -> tuple[Any, str]:
        """The state in one of `slots`; or None, and why it cannot be loaded."""
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
            self._saver.prepare()

    def close(self) -> None:
        """Wait for the save under way, and let another saver take over."""
        if self._saver is not None:
            self._saver.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def give_up_own(self) -> slot_folder.OwnFolder | None:
        """The folder of slots, to keep or to remove, if it is this process's own and not a
        launcher's."""
        own, self._own = self._own, None
        return own


def default_threads() -> int:
    """Half of this rank's share of the processors, 1 to 8."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // (2 * _local_world_size())))


def _local_world_size() -> int:
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
