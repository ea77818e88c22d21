"""A rank's slots in one file in shared memory, mapped: what is in them, and how one is written."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.flash_checkpoint import native_copy
from relkit.flash_checkpoint import slot_format as form
from relkit.flash_checkpoint.errors import BadSlot, NoRoom, SlotFault
from relkit.flash_checkpoint.slot_format import Owner, Places, SlotHeader
from relkit.private_file import open_private

# A file is made so much larger than its first state, as the next ones may have longer lists.
_SPARE_BYTES = 1 << 16
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class WholeSlot:
    """A slot whose header is in order; its layout and payload are checked when they are read."""

    index: int
    header: SlotHeader


class SlotFile:
    """The slots of one rank. The descriptor and the mapping live as long as the object.

    Args:
        path: of the file; descriptor: of it, which the object takes over.
        owner: whose the slots must be; slot_bytes: of one slot; count: of them.
        writable: map it for saves.
    """

    def __init__(
        self, path: Path, descriptor: int, owner: Owner, slot_bytes: int, *, writable: bool
    ) -> None:
        self.path, self.owner, self.slot_bytes = path, owner, slot_bytes
        self._descriptor, self._writable = descriptor, writable
        self._reserved: dict[int, int] = {}
        # Slots that are being written to disk.
        self.pinned: set[int] = set()
        self._map()

    def _map(self) -> None:
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        mapped = mmap.mmap(self._descriptor, 0, access=access)
        with suppress(OSError):
            # A data loader's process has no use for it, and copying the page table takes time.
            mapped.madvise(mmap.MADV_DONTFORK)
        # The array keeps the mapping, and whoever reads a tensor out of it keeps the array.
        self.bytes = np.frombuffer(mapped, dtype=np.uint8)
        self.count = min((self.bytes.size - form.PAGE_BYTES) // self.slot_bytes, form.MAX_SLOTS)

    @classmethod
    def open(cls, path: Path, owner: Owner, *, writable: bool = False) -> SlotFile:
        """The slots that are there.

        Raises:
            BadSlot: it is no file of slots, not this owner's, or not all of it is there.
            OSError: there is none, or others may read or write it.
        """
        flags = os.O_RDWR if writable else os.O_RDONLY
        return cls.of_descriptor(path, open_private(path, flags), owner, writable=writable)

    @classmethod
    def of_descriptor(
        cls, path: Path, descriptor: int, owner: Owner, *, writable: bool = False
    ) -> SlotFile:
        """The same for a file that is open; its descriptor is closed where it is refused.

        Raises:
            BadSlot: as `open`.
        """
        try:
            data = os.pread(descriptor, form.PAGE_BYTES, 0)
            size_bytes = os.fstat(descriptor).st_size
            found, slot_bytes, _ = form.read_file_header(data, size_bytes)
            form.require_owner(found, owner)
            return cls(path, descriptor, owner, slot_bytes, writable=writable)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def create(cls, path: Path, owner: Owner, end_bytes: int) -> SlotFile:
        """A file of two empty slots under a name of its own; `replace` gives it its final one.

        Args:
            end_bytes: what a slot must hold at least (Places.end).

        Raises:
            NoRoom: there is none, or files may not be so large.
        """
        slot_bytes = form.in_pages(end_bytes + _SPARE_BYTES)
        path.unlink(missing_ok=True)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            os.ftruncate(descriptor, form.PAGE_BYTES + 2 * slot_bytes)
            for index in range(2):
                _allocate(descriptor, form.PAGE_BYTES + index * slot_bytes)
            os.pwrite(descriptor, form.pack_file_header(owner, slot_bytes), 0)
            return cls(path, descriptor, owner, slot_bytes, writable=True)
        except BaseException as error:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise no_room(path.parent, 2 * slot_bytes, error) from error
            raise

    def replace(self, path: Path) -> None:
        """Take another name, in the place of what has it."""
        self.path.replace(path)
        self.path = path

    def discard(self) -> None:
        """Remove a file that was to be `replace`d, as its first save failed."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with its last reader."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        """Another descriptor of the file, for another process; closed at the end."""
        other = os.dup(self._descriptor)
        try:
            yield other
        finally:
            os.close(other)

    def base(self, index: int) -> int:
        """Where a slot begins, in bytes."""
        return form.PAGE_BYTES + index * self.slot_bytes

    def address(self, index: int, offset: int = 0) -> int:
        """Where that is in this process."""
        return int(self.bytes.ctypes.data) + self.base(index) + offset

    def header(self, index: int) -> SlotHeader:
        """What a slot says of itself.

        Raises:
            BadSlot: it is not whole.
        """
        base = self.base(index)
        word = native_copy.state(self.address(index)).to_bytes(8, "little")
        rest = self.bytes[base + 8 : base + form.SLOT_HEADER_BYTES].tobytes()
        return form.read_slot_header(word + rest, self.slot_bytes, self.owner)

    def whole(self) -> list[WholeSlot]:
        """The slots whose headers are in order, the newest first."""
        found = []
        for index in range(self.count):
            with suppress(BadSlot):
                found.append(WholeSlot(index, self.header(index)))
        return sorted(found, key=lambda slot: -slot.header.sequence)

    def free_slot(self) -> int | None:
        """A slot to save into: not the newest whole one, nor pinned; None where there is none."""
        taken = {*self.pinned, *(slot.index for slot in self.whole()[:1])}
        return next((index for index in range(self.count) if index not in taken), None)

    def add_slot(self) -> int | None:
        """One more slot; None where there are as many as there may be.

        Raises:
            OSError: there is no room.
        """
        if self.count >= form.MAX_SLOTS:
            return None
        os.ftruncate(self._descriptor, self.base(self.count) + self.slot_bytes)
        _allocate(self._descriptor, self.base(self.count))
        self._map()
        return self.count - 1

    def reserve(self, index: int, end_bytes: int) -> None:
        """Have the memory of a slot's first bytes: without it, writing to them would be fatal.

        Raises:
            NoRoom: there is none.
        """
        if self._reserved.get(index, 0) >= end_bytes:
            return
        try:
            os.posix_fallocate(self._descriptor, self.base(index), end_bytes)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise no_room(self.path.parent, end_bytes, error) from error
        self._reserved[index] = end_bytes

    def write(self, index: int, offset: int, data: bytes) -> None:
        """Write into a slot, where memory is reserved."""
        base = self.base(index) + offset
        self.bytes[base : base + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def layout(self, index: int, header: SlotHeader) -> bytes:
        """The layout of a whole slot.

        Raises:
            BadSlot: it is not what was saved.
        """
        base = self.base(index) + form.PAGE_BYTES
        data = self.bytes[base : base + header.layout_bytes].tobytes()
        if native_copy.crc32c(data) != header.layout_checksum:
            raise BadSlot(SlotFault.DAMAGED, "its layout has another checksum")
        return data

    def checksums(self, index: int, where: Places, payload_bytes: int) -> bytes:
        """The checksums of the blocks of a payload, as they are now."""
        base = self.base(index) + where.checksums
        return self.bytes[base : base + 4 * native_copy.block_count(payload_bytes)].tobytes()

    def payload(self, index: int, where: Places, payload_bytes: int) -> native_copy.Payload:
        """Where the payload is, for a copy."""
        return native_copy.Payload(
            self.address(index, where.payload), payload_bytes, self.address(index, where.checksums)
        )


def _allocate(descriptor: int, offset: int) -> None:
    """Have the memory of a slot's header: even reading a hole takes some."""
    os.posix_fallocate(descriptor, offset, form.PAGE_BYTES)


def require_room(folder: Path, wanted_bytes: int) -> None:
    """Refuse, before anything is written, what shared memory cannot hold.

    Raises:
        NoRoom: less than that is free.
        OSError: the folder is gone.
    """
    status = os.statvfs(folder)
    if status.f_bavail * status.f_frsize < wanted_bytes:
        raise no_room(folder, wanted_bytes)


def no_room(folder: Path, wanted_bytes: int, error: OSError | None = None) -> NoRoom:
    """The error that names the bytes needed and those that are free."""
    free = ""
    with suppress(OSError):
        status = os.statvfs(folder)
        free = f", and {status.f_bavail * status.f_frsize:,} are free"
    why = f": {error.strerror}" if error is not None else ""
    return NoRoom(
        f"no room in {folder} for a checkpoint in memory: {wanted_bytes:,} bytes are needed{free}"
        f"{why}"
    )
