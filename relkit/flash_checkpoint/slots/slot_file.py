"""A rank's slots: one file in shared memory, mapped for reading or for saving."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.files.private_file import open_private
from relkit.flash_checkpoint.slots import native_copy
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, NoRoom, SlotFault
from relkit.flash_checkpoint.slots.slot_format import Owner, Places, SlotHeader

# Spare room in each slot: later states may have longer lists than the first one.
_SPARE_BYTES = 1 << 16
# Made in one call: few milliseconds' work.
_POPULATE_BYTES = 8 << 20
# struct flock of Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class WholeSlot:
    """A slot with a valid header; its layout and payload are checked when they are read."""

    index: int
    header: SlotHeader


class SlotFile:
    """The slots of one rank. Descriptor and mapping are released with the object.

    Args:
        path: of the file; descriptor: of the open file, which this object closes.
        owner: rank and job that the slots belong to; slot_bytes: size of one slot.
        writable: map the file for saving too.
    """

    def __init__(
        self, path: Path, descriptor: int, owner: Owner, slot_bytes: int, *, writable: bool
    ) -> None:
        self.path, self.owner, self.slot_bytes = path, owner, slot_bytes
        self._descriptor, self._writable = descriptor, writable
        # How many bytes of each slot are known to have memory, and pages in this process.
        self._reserved: dict[int, int] = {}
        self._populated: dict[int, int] = {}
        self._map()
        self._close = weakref.finalize(self, os.close, descriptor)
        # A save that is under way when the process exits still needs it.
        self._close.atexit = False

    def _map(self) -> None:
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        mapped = mmap.mmap(self._descriptor, 0, access=access)
        with suppress(OSError):
            # A forked data loader does not need the mapping, and copying its page table takes time.
            mapped.madvise(mmap.MADV_DONTFORK)
        # The mapping lives as long as this array and the tensors that are views of it.
        self.bytes = np.frombuffer(mapped, dtype=np.uint8)
        self._populated.clear()
        self.count = min((self.bytes.size - form.PAGE_BYTES) // self.slot_bytes, form.MAX_SLOTS)

    @classmethod
    def open(cls, path: Path, owner: Owner, *, writable: bool = False) -> SlotFile:
        """Open an existing file of slots.

        Raises:
            BadSlot: it is not a file of slots, belongs to another owner, or is truncated.
            OSError: it does not exist, or other users may read or write it.
        """
        flags = os.O_RDWR if writable else os.O_RDONLY
        return cls.of_descriptor(path, open_private(path, flags), owner, writable=writable)

    @classmethod
    def of_descriptor(
        cls, path: Path, descriptor: int, owner: Owner, *, writable: bool = False
    ) -> SlotFile:
        """The same for a file that is open already; its descriptor is closed if it is refused.

        Raises:
            BadSlot: as `open`.
        """
        try:
            data = os.pread(descriptor, form.PAGE_BYTES, 0)
            size_bytes = os.fstat(descriptor).st_size
            file_owner, slot_bytes = form.read_file_header(data, size_bytes)
            form.require_owner(file_owner, owner)
            return cls(path, descriptor, owner, slot_bytes, writable=writable)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def create(cls, path: Path, owner: Owner, end_bytes: int) -> SlotFile:
        """Make a file of two empty slots.

        Args:
            path: a temporary name; `replace` gives the file its final one.
            end_bytes: what a slot must hold at least (Places.end).

        Raises:
            NoRoom: shared memory is full, or files may not be that large.
        """
        path.unlink(missing_ok=True)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            return cls._of_new(path, descriptor, owner, end_bytes)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def create_unnamed(cls, folder: Path, owner: Owner, end_bytes: int) -> SlotFile:
        """The same without a name: its memory is freed when this process ends, however it ends.
        `name` gives it one.

        Raises:
            NoRoom: as `create`.
            OSError: the file system has no files without names.
        """
        flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
        return cls._of_new(folder, os.open(folder, flags, 0o600), owner, end_bytes)

    @classmethod
    def _of_new(cls, path: Path, descriptor: int, owner: Owner, end_bytes: int) -> SlotFile:
        slot_bytes = form.in_pages(end_bytes + _SPARE_BYTES)
        try:
            os.ftruncate(descriptor, form.PAGE_BYTES + 2 * slot_bytes)
            for index in range(2):
                _allocate(descriptor, form.PAGE_BYTES + index * slot_bytes)
            os.pwrite(descriptor, form.pack_file_header(owner, slot_bytes), 0)
            return cls(path, descriptor, owner, slot_bytes, writable=True)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise no_room(path.parent, 2 * slot_bytes, error) from error
            raise

    def name(self, path: Path) -> None:
        """Give a file without a name one.

        Raises:
            OSError: the name is taken, or there is no /proc.
        """
        # With a folder (any: the path is absolute) Python calls linkat, which follows the link of
        # /proc; without one it calls link, which does not, whatever `follow_symlinks` is.
        source = f"/proc/self/fd/{self._descriptor}"
        os.link(source, path, src_dir_fd=self._descriptor, follow_symlinks=True)
        self.path = path

    def replace(self, path: Path) -> None:
        """Rename the file, replacing what has that name."""
        self.path.replace(path)
        self.path = path

    def discard(self) -> None:
        """Remove a file whose first save failed, and which was never renamed."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the descriptor; the mapping is released with its last view."""
        self._close()

    def fileno(self) -> int:
        """The descriptor, for a child process; it takes part in the locks of this object."""
        return self._descriptor

    def lock(self, index: int) -> None:
        """Keep the savers that have opened this file themselves from overwriting a slot.

        The kernel holds the lock until `unlock`, or until this process, and each child that has
        inherited the descriptor, has ended.

        Raises:
            OSError: the kernel refuses.
        """
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, index)

    def unlock(self, index: int) -> None:
        """Let savers overwrite a slot again."""
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, index)

    def is_locked(self, index: int) -> bool:
        """Whether somebody who has opened the file on their own has locked the slot."""
        return self._lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, index) != fcntl.F_UNLCK

    def _lock(self, command: int, kind: int, index: int) -> int:
        # On the first byte of the slot. Locks of open files, not of processes: a process gives up
        # all locks of its own on a file when it closes any of its descriptors.
        request = _FLOCK.pack(kind, os.SEEK_SET, self.base(index), 1, 0)
        answer = fcntl.fcntl(self._descriptor, command, request)
        return int(_FLOCK.unpack(answer)[0])

    def base(self, index: int) -> int:
        """Offset of a slot in the file, bytes."""
        return form.PAGE_BYTES + index * self.slot_bytes

    def address(self, index: int, offset: int = 0) -> int:
        """Address of a slot in this process, plus an offset in bytes."""
        return int(self.bytes.ctypes.data) + self.base(index) + offset

    def header(self, index: int) -> SlotHeader:
        """The header of a whole slot.

        Raises:
            BadSlot: the slot is not whole.
        """
        base = self.base(index)
        word = native_copy.state(self.address(index)).to_bytes(8, "little")
        rest = self.bytes[base + 8 : base + form.SLOT_HEADER_BYTES].tobytes()
        return form.read_slot_header(word + rest, self.slot_bytes, self.owner)

    def whole(self) -> list[WholeSlot]:
        """The slots with valid headers, newest first."""
        slots = []
        for index in range(self.count):
            with suppress(BadSlot):
                slots.append(WholeSlot(index, self.header(index)))
        return sorted(slots, key=lambda slot: -slot.header.sequence)

    def free_slot(self, kept: int = 1) -> int | None:
        """A slot to save into; None where there is none.

        Args:
            kept: so many of the newest whole slots are left alone, and all that are locked.
        """
        newest = [slot.index for slot in self.whole()[:kept]]
        others = (index for index in range(self.count) if index not in newest)
        return next((index for index in others if not self.is_locked(index)), None)

    def add_slot(self) -> int:
        """Append an empty slot, and return its index.

        Raises:
            NoRoom: shared memory is full, or the file has MAX_SLOTS already.
        """
        folder = self.path.parent
        if self.count >= form.MAX_SLOTS:
            raise NoRoom(f"all {self.count} slots in {folder} are in use")
        base = self.base(self.count)
        try:
            # The header's page first: if this fails or the process is killed, the file has no slot
            # whose header nobody could read.
            _allocate(self._descriptor, base)
            os.ftruncate(self._descriptor, base + self.slot_bytes)
            self._map()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise no_room(folder, self.slot_bytes, error) from error
        return self.count - 1

    def reserve(self, index: int, end_bytes: int) -> None:
        """Allocate the first bytes of a slot: writing to a hole of a full tmpfs raises SIGBUS.

        Raises:
            NoRoom: shared memory is full.
        """
        begin_bytes = self._reserved.get(index, 0)
        if begin_bytes >= end_bytes:
            return
        try:
            offset, size_bytes = self.base(index) + begin_bytes, end_bytes - begin_bytes
            os.posix_fallocate(self._descriptor, offset, size_bytes)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise no_room(self.path.parent, end_bytes, error) from error
        self._reserved[index] = end_bytes

    def populate(self, index: int, end_bytes: int, stop: Callable[[], bool]) -> None:
        """Reserve the first bytes of a slot as `reserve` does, and have the kernel make their pages
        now: a save into new pages takes several times as long as one into pages that exist.

        Args:
            stop: asked every few milliseconds; what is left is then done by the save itself.

        Raises:
            NoRoom: shared memory is full.
        """
        begin_bytes = self._populated.get(index, 0)
        mapped = self.bytes  # kept mapped, although `add_slot` maps the file anew
        address = int(mapped.ctypes.data) + self.base(index)
        while begin_bytes < end_bytes and not stop():
            until_bytes = min(begin_bytes + _POPULATE_BYTES, form.in_pages(end_bytes))
            self.reserve(index, until_bytes)
            if not native_copy.populate(address + begin_bytes, until_bytes - begin_bytes):
                return
            begin_bytes = self._populated[index] = until_bytes

    def write(self, index: int, offset: int, data: bytes) -> None:
        """Write into the reserved part of a slot."""
        base = self.base(index) + offset
        self.bytes[base : base + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def layout(self, index: int, header: SlotHeader) -> bytes:
        """The layout of a whole slot.

        Raises:
            BadSlot: it does not match its checksum.
        """
        base = self.base(index) + form.PAGE_BYTES
        data = self.bytes[base : base + header.layout_bytes].tobytes()
        if native_copy.crc32c(data) != header.layout_checksum:
            raise BadSlot(SlotFault.DAMAGED, "its layout does not match its checksum")
        return data

    def checksums(self, index: int, where: Places, payload_bytes: int) -> bytes:
        """The stored checksums of a payload's blocks."""
        base = self.base(index) + where.checksums
        return self.bytes[base : base + 4 * native_copy.block_count(payload_bytes)].tobytes()

    def payload(self, index: int, where: Places, payload_bytes: int) -> native_copy.Payload:
        """Addresses of the payload and its checksums, for a copy."""
        return native_copy.Payload(
            self.address(index, where.payload), payload_bytes, self.address(index, where.checksums)
        )


def _allocate(descriptor: int, offset: int) -> None:
    """Allocate a slot's header: even reading a hole of a full tmpfs raises SIGBUS."""
    os.posix_fallocate(descriptor, offset, form.PAGE_BYTES)


def require_room(folder: Path, wanted_bytes: int) -> None:
    """Raise if a folder's file system has less room than that.

    Raises:
        NoRoom: less is free.
        OSError: the folder is gone.
    """
    status = os.statvfs(folder)
    if status.f_bavail * status.f_frsize < wanted_bytes:
        raise no_room(folder, wanted_bytes)


def no_room(folder: Path, wanted_bytes: int, error: OSError | None = None) -> NoRoom:
    """An error with the number of bytes that are needed and free."""
    free = ""
    with suppress(OSError):
        status = os.statvfs(folder)
        free = f", and {status.f_bavail * status.f_frsize:,} are free"
    reason = f": {error.strerror}" if error is not None else ""
    return NoRoom(
        f"no room in {folder} for a checkpoint in memory: {wanted_bytes:,} bytes are needed{free}"
        f"{reason}"
    )
