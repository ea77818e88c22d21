"""Saves a rank's state into its slots while the training loop runs."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from relkit.errors import DeadlineExceeded, UsageProblem
from relkit.flash_checkpoint import expected_size, snapshot
from relkit.flash_checkpoint.optimizer_watch import OptimizerWatch
from relkit.flash_checkpoint.save_handle import WAIT_S, SaveHandle
from relkit.flash_checkpoint.slots import native_copy
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, ChangedWhileCopied, NoRoom
from relkit.flash_checkpoint.slots.native_copy import CopyPool, block_count
from relkit.flash_checkpoint.slots.other_ranks import Nobody, OtherRanks, slots_to_keep
from relkit.flash_checkpoint.slots.prepared_slots import PreparedSlots
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot, require_room
from relkit.flash_checkpoint.slots.slot_format import Owner, Places, SlotHeader
from relkit.flash_checkpoint.snapshot import Snapshot
from relkit.process.interruptible_wait import wait_for_end

# Suffix of a file that has no whole slot yet.
NEW_SUFFIX = ".new"
_MAX_NAMED = 5


@dataclass(slots=True)
class _Copy:
    """A copy of one state into one slot."""

    handle: SaveHandle
    taken: Snapshot
    file: SlotFile
    index: int
    where: Places
    header: SlotHeader
    when_whole: Callable[[SlotFile, WholeSlot], None] | None


class MemorySaver:
    """Saves one rank's states into its file of slots.

    Args:
        path: of the file; what an earlier process of this rank saved there is kept until it is
            overwritten.
        owner: rank and job that the slots belong to.
        threads: number of threads that copy, 1 to 64.
        others: the other ranks of the job; what they may need is not overwritten.
        savers: how many ranks of this node save, this one included.

    Raises:
        SlotsUnavailable: the native library is missing.
    """

    # Files of which a saver of this process has discarded what an earlier run had left.
    _resumed: ClassVar[set[tuple[int, Path]]] = set()

    def __init__(
        self,
        path: Path,
        owner: Owner,
        threads: int,
        others: OtherRanks | None = None,
        savers: int = 1,
    ) -> None:
        self._path, self._owner, self._others = path, owner, others or Nobody()
        self._pool = CopyPool(threads)
        self._file: SlotFile | None = None
        self._savers = savers
        self._prepared: PreparedSlots | None = None
        self._adopted = False
        # Shared memory was too small before: reserve a whole slot before the loop goes on. A save
        # that does not fit then fails at once, and can still be written to disk from the tensors.
        self._is_short_of_room = False
        self._pending = SaveHandle.ended(-1)
        self._copies: queue.SimpleQueue[_Copy | None] = queue.SimpleQueue()
        self._watch = OptimizerWatch(self._before_step, self.prepare)
        self._thread = threading.Thread(target=self._work, name="relkit-flash", daemon=True)
        self._thread.start()

    def save(
        self,
        step: int,
        state: object,
        when_whole: Callable[[SlotFile, WholeSlot], None] | None = None,
    ) -> SaveHandle:
        """Start to save a state; the loop may go on at once, until the next step of an optimizer.

        Args:
            step: 0 or more.
            state: tensors, arrays and plain values in containers.
            when_whole: called with the slot once it is whole, in a file of its own in which it is
                locked: no save overwrites it until the caller calls `SlotFile.unlock`.

        Raises:
            NotPlain: something in the state cannot be saved.
            NoRoom: shared memory is too small.
            DeadlineExceeded: the previous save is still under way, after WAIT_S.
            UsageProblem: the step is not a number from 0 on, or the saver has been closed.
        """
        if not 0 <= step < 1 << 63:
            raise UsageProblem(f"{step} is not a step", next_step="Steps are 0, 1, 2, ...")
        if not self._thread.is_alive():
            raise UsageProblem(
                "the checkpointer is closed, or was made before this process was forked",
                next_step="Make a new checkpointer in the process that saves.",
            )
        self.wait()
        saved_unix_ns = time.time_ns()
        taken = snapshot.take(state, self._watch.storages())
        where = form.places(len(taken.layout), taken.payload_bytes)
        file = self._file_for(where.end)
        index = self._slot(file)
        header = SlotHeader(
            sequence=max((slot.header.sequence for slot in self._known(file)), default=0) + 1,
            step=step,
            saved_unix_ns=saved_unix_ns,
            layout_bytes=len(taken.layout),
            payload_bytes=taken.payload_bytes,
            layout_checksum=native_copy.crc32c(taken.layout),
            blocks_checksum=0,
        )
        copy = _Copy(SaveHandle(step), taken, file, index, where, header, when_whole)
        try:
            self._begin(copy)
        except BaseException:
            self._drop(file)
            raise
        self._pending = copy.handle
        self._copies.put(copy)
        return copy.handle

    def adopt(self, sequence: int | None) -> None:
        """Keep the slot that the loop resumes from, and discard all others.

        A newer slot of an earlier run could otherwise be mistaken for one of this run.

        Args:
            sequence: of the slot to keep; None: keep none.
        """
        self.wait()
        self._adopted = True
        self._resumed.add((os.getpid(), self._path))
        if self._file is None:
            try:
                self._file = SlotFile.open(self._path, self._owner, writable=True)
            except BadSlot:
                # Saved by another number of ranks, or damaged: it would only take up memory.
                with suppress(OSError):
                    self._path.unlink()
                return
            except OSError:
                return
        for slot in self._file.whole():
            if slot.header.sequence != sequence:
                native_copy.withdraw(self._file.address(slot.index), form.WRITING)

    def prepare(self) -> None:
        """Begin to make the memory of the first save, as large as the optimizers that there are by
        now let expect; at the latest, their first step calls this. The loop goes on meanwhile.
        """
        if self._prepared is not None or self._file is not None or not self._thread.is_alive():
            return
        size_bytes = expected_size.expected_bytes(expected_size.optimizers())
        if size_bytes:
            folder = self._path.parent
            self._prepared = PreparedSlots(folder, self._owner, size_bytes, self._savers)

    def _take_over(self) -> None:
        """Before the first save: keep nothing of an earlier run, unless this process has resumed
        from it through another saver, which has discarded the rest."""
        if (os.getpid(), self._path) not in self._resumed:
            self.adopt(None)
            return
        self._adopted = True
        with suppress(BadSlot, OSError):
            self._file = SlotFile.open(self._path, self._owner, writable=True)

    def _begin(self, copy: _Copy) -> None:
        """The part of a save that must be done before the loop goes on."""
        file, index, taken, where = copy.file, copy.index, copy.taken, copy.where
        early_bytes = min(taken.early_blocks * native_copy.BLOCK_BYTES, taken.payload_bytes)
        file.reserve(index, where.end if self._is_short_of_room else where.payload + early_bytes)
        native_copy.withdraw(file.address(index), form.WRITING)
        file.write(index, where.layout, taken.layout)
        if taken.early_blocks:
            payload = file.payload(index, where, taken.payload_bytes)
            self._pool.save(payload, taken.pieces, 0, taken.early_blocks)

    def _drop(self, file: SlotFile) -> None:
        """Remove a new file whose first save failed, which frees its memory."""
        if file is not self._file:
            file.discard()

    def wait(self) -> None:
        """Wait until the copy under way has ended, successfully or not: tensors may change then.

        In a forked child there is nothing to wait for: the copying thread is not in it.

        Raises:
            DeadlineExceeded: the copy began WAIT_S ago and has not ended.
        """
        if self._thread.is_alive():
            handle = self._pending
            handle.wait_end(max(0.0, handle.began_s + WAIT_S - time.monotonic()))

    def _before_step(self) -> None:
        # After the deadline the step is made all the same: the copy then sees that its tensors have
        # changed, and its slot is not used.
        with suppress(DeadlineExceeded):
            self.wait()

    def close(self) -> None:
        """Wait for the copy under way, and end the threads; the slots remain."""
        if not self._thread.is_alive():
            return
        self._resumed.discard((os.getpid(), self._path))
        self._watch.close()
        if self._prepared is not None:
            self._prepared.discard()
        self._copies.put(None)
        try:
            self.wait()
        except DeadlineExceeded:
            return  # the thread is a daemon, and still uses the pool
        wait_for_end(self._thread)
        self._pool.close()

    def _known(self, file: SlotFile) -> list[WholeSlot]:
        """Whole slots of this file, and of the one that it will replace."""
        known = file.whole()
        if self._file is not None and self._file is not file:
            known += self._file.whole()
        return known

    def _file_for(self, end_bytes: int) -> SlotFile:
        """A file whose slots are large enough. A new file takes its final name when its first slot
        is whole; the old file remains usable until then."""
        if not self._adopted:
            self._take_over()
        if self._file is not None and self._file.slot_bytes >= end_bytes:
            return self._file
        path = self._path.with_suffix(NEW_SUFFIX)
        if self._prepared is not None and (file := self._prepared.take(path, end_bytes)):
            return file
        require_room(self._path.parent, 2 * end_bytes)
        return SlotFile.create(path, self._owner, end_bytes)

    def _slot(self, file: SlotFile) -> int:
        """The slot to save into: a free one, or one more while the others are needed.

        Raises:
            NoRoom: there is no room for one more.
        """
        kept = slots_to_keep([slot.header.step for slot in file.whole()], self._others)
        index = file.free_slot(kept)
        if index is not None:
            return index
        try:
            require_room(file.path.parent, file.slot_bytes)
            return file.add_slot()
        except NoRoom:
            # One more slot guards against a kill at this very moment: better a save without it.
            index = file.free_slot()
            if index is None:
                raise
            return index

    def _work(self) -> None:
        while (copy := self._copies.get()) is not None:
            failure: Exception | None = None
            try:
                self._finish(copy)
            except Exception as error:  # noqa: BLE001  the handle reports it, and the loop goes on
                failure = error
                self._is_short_of_room |= isinstance(error, NoRoom)
                self._drop(copy.file)
            copy.handle.end(failure)
            if failure is None and copy.file.count == 2:
                # For the next save, while the loop goes on.
                try:
                    copy.file.populate(1 - copy.index, copy.where.end, self._has_work)
                except (NoRoom, OSError):
                    self._is_short_of_room = True
            del copy

    def _has_work(self) -> bool:
        return not self._copies.empty()

    def _finish(self, copy: _Copy) -> None:
        file, index, taken = copy.file, copy.index, copy.taken
        file.reserve(index, copy.where.end)
        payload = file.payload(index, copy.where, taken.payload_bytes)
        end = block_count(taken.payload_bytes)
        self._pool.save(payload, taken.pieces, taken.early_blocks, end)
        changed = [watched.name for watched in taken.watched if watched.changed]
        if changed:
            more = f" and {len(changed) - _MAX_NAMED} more" if len(changed) > _MAX_NAMED else ""
            raise ChangedWhileCopied(
                f"step {copy.header.step} is not saved in memory: {', '.join(changed[:_MAX_NAMED])}"
                f"{more} changed while being copied"
            )
        checksums = file.checksums(index, copy.where, taken.payload_bytes)
        header = replace(copy.header, blocks_checksum=native_copy.crc32c(checksums))
        native_copy.publish(file.address(index), form.pack_slot_header(header, self._owner))
        if file is not self._file:
            file.replace(self._path)
            self._file = file
        if copy.when_whole is not None:
            locked = SlotFile.open(self._path, self._owner, writable=True)
            locked.lock(index)
            copy.when_whole(locked, WholeSlot(index, header))
