"""Saves a rank's state into its slots while the training loop goes on."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.errors import DeadlineExceeded, RelkitError, UsageProblem
from relkit.flash_checkpoint import native_copy, snapshot
from relkit.flash_checkpoint import slot_format as form
from relkit.flash_checkpoint.errors import BadSlot, ChangedWhileCopied
from relkit.flash_checkpoint.native_copy import CopyPool, block_count
from relkit.flash_checkpoint.optimizer_watch import OptimizerWatch
from relkit.flash_checkpoint.slot_file import SlotFile, WholeSlot, require_room
from relkit.flash_checkpoint.slot_format import Owner, Places, SlotHeader
from relkit.flash_checkpoint.snapshot import Snapshot

# Of a file that has no whole slot yet.
NEW_SUFFIX = ".new"
_MAX_NAMED = 5


class SaveHandle:
    """A save on its way."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._told: Callable[[Exception], None] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._over.is_set()

    @property
    def failure(self) -> Exception | None:
        """Why it failed, once it is done."""
        return self._failure

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the state is safe.

        Raises:
            RelkitError: it could not be saved; the save before it is still there.
            DeadlineExceeded: it takes longer.
        """
        self.wait_end(timeout_s)
        if self._failure is not None:
            raise self._failure

    def wait_end(self, timeout_s: float | None = None) -> None:
        """Wait until it has ended, well or not.

        Raises:
            DeadlineExceeded: it takes longer.
        """
        if not self._over.wait(timeout_s):
            raise DeadlineExceeded(
                f"the save of step {self.step} takes longer than {timeout_s:g} s",
                next_step="Wait longer: it goes on.",
            )

    def then(self, told: Callable[[Exception], None]) -> None:
        """Have a failure told, by whoever notices it; once."""
        self._told = told
        if self.done and self._failure is not None:
            self._tell()

    def _tell(self) -> None:
        told, self._told = self._told, None
        if told is not None and self._failure is not None:
            told(self._failure)

    def end(self, failure: Exception | None = None) -> None:
        """For the saver: it is over."""
        self._failure = failure
        self._over.set()
        self._tell()


@dataclass(slots=True)
class _Copy:
    """One copy into one slot."""

    handle: SaveHandle
    taken: Snapshot
    file: SlotFile
    index: int
    where: Places
    header: SlotHeader
    then: Callable[[SlotFile, WholeSlot], None] | None


class MemorySaver:
    """The saves of one rank into one file of slots.

    Args:
        path: of the file; what an earlier process of this rank saved in it stays until it is
            replaced.
        owner: whose slots they are.
        threads: that copy, at least 1.

    Raises:
        SlotsUnavailable: the native library is missing.
    """

    def __init__(self, path: Path, owner: Owner, threads: int) -> None:
        self._path, self._owner = path, owner
        self._pool = CopyPool(threads)
        self._file: SlotFile | None = None
        self._adopted = False
        self._pending = SaveHandle(-1)
        self._pending.end()
        self._copies: queue.SimpleQueue[_Copy | None] = queue.SimpleQueue()
        self._watch = OptimizerWatch(self.wait)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="relkit-flash", daemon=True)
        self._thread.start()

    def save(
        self,
        step: int,
        state: object,
        then: Callable[[SlotFile, WholeSlot], None] | None = None,
    ) -> SaveHandle:
        """Save a state; the loop may go on at once, up to the next step of an optimizer.

        Args:
            step: 0 or more.
            state: tensors, arrays and plain values in containers.
            then: called with the slot when it is whole; it is pinned, so that it stays as it is
                until it is taken out of `SlotFile.pinned`.

        Raises:
            NotPlain: something in the state cannot be saved.
            NoRoom: shared memory is too small.
        """
        if not 0 <= step < 1 << 63:
            raise UsageProblem(f"step {step} is none", next_step="Steps are 0, 1, 2, ...")
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
        copy = _Copy(SaveHandle(step), taken, file, index, where, header, then)
        try:
            self._begin(copy)
        except RelkitError:
            self._drop(file)
            raise
        self._pending = copy.handle
        self._copies.put(copy)
        return copy.handle

    def adopt(self, sequence: int | None) -> None:
        """Say which of the slots that are there the loop goes on from; the others are given up.

        Were a newer one left, it could be taken for a state of this run.

        Args:
            sequence: of the slot; None: of none.
        """
        self.wait()
        self._adopted = True
        if self._file is None:
            with suppress(BadSlot, OSError):
                self._file = SlotFile.open(self._path, self._owner, writable=True)
        if self._file is None:
            return
        for slot in self._file.whole():
            if slot.header.sequence != sequence:
                native_copy.withdraw(self._file.address(slot.index), form.WRITING)

    def _begin(self, copy: _Copy) -> None:
        """What is to be done before the loop goes on."""
        file, index, taken, where = copy.file, copy.index, copy.taken, copy.where
        early_bytes = min(taken.early_blocks * native_copy.BLOCK_BYTES, taken.payload_bytes)
        file.reserve(index, where.payload + early_bytes)
        native_copy.withdraw(file.address(index), form.WRITING)
        file.write(index, where.layout, taken.layout)
        if taken.early_blocks:
            payload = file.payload(index, where, taken.payload_bytes)
            self._pool.save(payload, taken.pieces, 0, taken.early_blocks)

    def _drop(self, file: SlotFile) -> None:
        """A new file whose first save failed goes; shared memory is memory."""
        if file is not self._file:
            file.discard()

    def wait(self) -> None:
        """Wait for the copy under way, whether it ends well or not: tensors may change then."""
        if os.getpid() == self._pid:
            self._pending.wait_end()

    def close(self) -> None:
        """Wait for what is under way, and let go of everything but the slots."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        self._watch.close()
        self._copies.put(None)
        self._thread.join()
        self._pool.close()

    def _known(self, file: SlotFile) -> list[WholeSlot]:
        """Whole slots of the file in hand, and of the one that it is to replace."""
        known = file.whole()
        if self._file is not None and self._file is not file:
            known += self._file.whole()
        return known

    def _file_for(self, end_bytes: int) -> SlotFile:
        """A file whose slots are large enough; a new one gets its name with its first whole slot,
        so that the old one serves until then."""
        if not self._adopted:
            self.adopt(None)
        if self._file is not None and self._file.slot_bytes >= end_bytes:
            return self._file
        require_room(self._path.parent, 2 * end_bytes)
        return SlotFile.create(self._path.with_suffix(NEW_SUFFIX), self._owner, end_bytes)

    def _slot(self, file: SlotFile) -> int:
        """The slot to save into; where the only one is being written to disk, one more is made, or
        the end of the writing is waited for."""
        while (index := file.free_slot()) is None:
            with suppress(RelkitError, OSError):
                require_room(file.path.parent, file.slot_bytes)
                added = file.add_slot()
                if added is not None:
                    return added
            time.sleep(0.01)
        return index

    def _work(self) -> None:
        while (copy := self._copies.get()) is not None:
            failure: Exception | None = None
            try:
                self._finish(copy)
            except Exception as error:  # noqa: BLE001  told by the handle, and the loop goes on
                failure = error
                self._drop(copy.file)
            copy.handle.end(failure)
            if failure is None and copy.file.count == 2:
                # The next save, if it is to fail for want of room, is to do so at once; and the
                # loop does not wait for this.
                with suppress(RelkitError, OSError):
                    copy.file.reserve(1 - copy.index, copy.where.end)
            del copy

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
                f"step {copy.header.step} is not safe in memory: {', '.join(changed[:_MAX_NAMED])}"
                f"{more} changed while being copied"
            )
        checksums = file.checksums(index, copy.where, taken.payload_bytes)
        header = replace(copy.header, blocks_checksum=native_copy.crc32c(checksums))
        if copy.then is not None:
            file.pinned.add(index)
        native_copy.publish(file.address(index), form.pack_slot_header(header, self._owner))
        if file is not self._file:
            file.replace(self._path)
            if self._file is not None:
                self._file.close()
            self._file = file
        if copy.then is not None:
            copy.then(file, WholeSlot(index, header))
