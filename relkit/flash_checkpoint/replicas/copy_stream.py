"""A slot's bytes on their way from one place to another, checked as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from relkit.flash_checkpoint.slots import native_copy
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.native_copy import BLOCK_BYTES, block_count
from relkit.flash_checkpoint.slots.slot_format import SlotHeader

# Fills a buffer with what is at an offset of the slot; offsets come in order, see `parts`.
ReadInto = Callable[[memoryview, int], None]
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


def parts(header: SlotHeader) -> Iterator[tuple[int, int]]:
    """Offset and size of what a slot holds beside its header, in pieces of a MiB at most."""
    where = form.places(header.layout_bytes, header.payload_bytes)
    checksums_bytes = 4 * block_count(header.payload_bytes)
    for offset, size in (
        (where.layout, header.layout_bytes),
        (where.checksums, checksums_bytes),
        (where.payload, header.payload_bytes),
    ):
        for begin in range(0, size, BLOCK_BYTES):
            yield offset + begin, min(BLOCK_BYTES, size - begin)


def receive(read_into: ReadInto, header: SlotHeader, slot: Bytes) -> None:
    """Fill a slot, all but its header, and check every byte of it.

    Args:
        read_into: where it comes from; header: as it came, its own checksum checked.
        slot: memory for all of the slot; its first page is left alone.

    Raises:
        BadSlot: something does not match its checksum; the memory is of no use then.
    """
    where = form.places(header.layout_bytes, header.payload_bytes)
    view = memoryview(slot)  # type: ignore[arg-type]  # arrays are buffers, from Python 3.12 on
    pieces = parts(header)
    checksums = np.zeros(0, np.uint32)
    for offset, size in pieces:
        read_into(view[offset : offset + size], offset)
        if offset + size == where.layout + header.layout_bytes:
            layout = slot[where.layout : offset + size]
            _require(native_copy.crc32c(layout), header.layout_checksum, "its layout")
        if offset >= where.payload:
            block = (offset - where.payload) // BLOCK_BYTES
            data = slot[offset : offset + size]
            _require(native_copy.crc32c(data), int(checksums[block]), f"block {block}")
        elif offset + size == where.checksums + 4 * block_count(header.payload_bytes):
            raw = slot[where.checksums : offset + size]
            _require(native_copy.crc32c(raw), header.blocks_checksum, "its array of checksums")
            checksums = raw.view(np.uint32)


def reader_of(descriptor: int, base: int) -> ReadInto:
    """What reads a slot that lies in an open file.

    Args:
        base: of the slot in the file, bytes.
    """

    def read_into(view: memoryview, offset: int) -> None:
        # Without the GIL, unlike a copy from a mapping.
        if os.preadv(descriptor, [view], base + offset) != len(view):
            raise BadSlot(SlotFault.TRUNCATED, "its file ends too early")

    return read_into


def _require(real: int, stored: int, what: str) -> None:
    if real != stored:
        raise BadSlot(SlotFault.DAMAGED, f"{what} does not match its checksum")
