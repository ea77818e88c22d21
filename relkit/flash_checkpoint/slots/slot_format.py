"""The format of a file of slots, and why a slot may be refused. No torch here.

    page 0            file header: magic, version, size of a slot, rank, world size, job
    slot 0, slot 1    (more while one is being written to disk), each:
        page 0        slot header; its first word, the state, is written last
        layout        JSON: the tree of the state, and the arrays in the payload
        checksums     CRC32C of each MiB of the payload
        payload       the arrays; begins on a page of its own

Every byte that is read is covered: the header has a checksum of itself, of the layout and of the
array of checksums, which covers the payload. Little-endian throughout.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.native_copy import block_count, crc32c

PAGE_BYTES = 4096
VERSION = 1
# One to save into, two that other ranks may still need, and two that are being written to disk: by
# the rank, and by a launcher.
MAX_SLOTS = 5
FILE_MAGIC = b"RKSLOTS\n"
EMPTY, WRITING = 0, int.from_bytes(b"RKTORN!\n", "little")
WHOLE = int.from_bytes(b"RKWHOLE\n", "little")
MAX_LAYOUT_BYTES = 1 << 28
_MAX_PAYLOAD_BYTES = 1 << 46
_FILE = struct.Struct("<8sIIQII16s")
_SLOT = struct.Struct("<QII5QIIII16sI")
_CHECKSUM = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE.size + _CHECKSUM.size
SLOT_HEADER_BYTES = _SLOT.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Owner:
    """The rank and job that slots belong to.

    Args:
        rank: 0 .. world_size - 1; job: 16 bytes that identify the job (`job_mark`).
    """

    rank: int
    world_size: int
    job: bytes


@dataclass(frozen=True, slots=True)
class SlotHeader:
    """The header of a whole slot.

    Args:
        sequence: number of this save, 1, 2, ... on this rank; step: of the training loop.
        saved_unix_ns: time of the call that saved it.
        layout_checksum, blocks_checksum: CRC32C of the layout, and of the array of checksums.
    """

    sequence: int
    step: int
    saved_unix_ns: int
    layout_bytes: int
    payload_bytes: int
    layout_checksum: int
    blocks_checksum: int


@dataclass(frozen=True, slots=True)
class Places:
    """Offsets of the parts of a slot from its start, bytes."""

    layout: int
    checksums: int
    payload: int
    end: int


def job_mark(name: str) -> bytes:
    """16 bytes that identify a job."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def places(layout_bytes: int, payload_bytes: int) -> Places:
    """Offsets in a slot, for a layout and a payload of these sizes."""
    checksums = -(-(PAGE_BYTES + layout_bytes) // 8) * 8
    payload = in_pages(checksums + 4 * block_count(payload_bytes))
    return Places(PAGE_BYTES, checksums, payload, in_pages(payload + payload_bytes))


def in_pages(size_bytes: int) -> int:
    """Rounded up to whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def pack_file_header(owner: Owner, slot_bytes: int) -> bytes:
    """The header of a file of slots."""
    head = _FILE.pack(
        FILE_MAGIC, VERSION, PAGE_BYTES, slot_bytes, owner.rank, owner.world_size, owner.job
    )
    return head + _CHECKSUM.pack(crc32c(head))


def read_file_header(data: bytes, size_bytes: int) -> tuple[Owner, int]:
    """The owner of a file of slots, and the size of one slot in bytes.

    Args:
        data: the first page, or as much of it as exists; size_bytes: of the whole file.

    Raises:
        BadSlot: it is not a file of slots, or is truncated.
    """
    if data[: len(FILE_MAGIC)] != FILE_MAGIC:
        raise BadSlot(SlotFault.FOREIGN, "it is not a file of slots")
    if len(data) < FILE_HEADER_BYTES:
        raise BadSlot(SlotFault.TRUNCATED, f"it has {size_bytes} bytes")
    _, version, page, slot_bytes, rank, world_size, job = _FILE.unpack_from(data)
    if version != VERSION or page != PAGE_BYTES:
        raise BadSlot(SlotFault.OTHER_VERSION, f"its version is {version}, not {VERSION}")
    if _CHECKSUM.unpack_from(data, _FILE.size)[0] != crc32c(data[: _FILE.size]):
        raise BadSlot(SlotFault.DAMAGED, "the header of the file does not match its checksum")
    count = (size_bytes - PAGE_BYTES) // slot_bytes if slot_bytes >= PAGE_BYTES else 0
    if count < 2:
        raise BadSlot(SlotFault.TRUNCATED, f"it has {size_bytes} bytes")
    return Owner(rank, world_size, job), slot_bytes


def require_owner(owner: Owner, wanted: Owner) -> None:
    """Refuse slots of another job, of another rank, or of a job of another size.

    Raises:
        BadSlot: they are such.
    """
    if owner.job != wanted.job:
        raise BadSlot(SlotFault.FOREIGN, "it belongs to another job")
    if owner.rank != wanted.rank:
        raise BadSlot(SlotFault.FOREIGN, f"it belongs to rank {owner.rank}")
    if owner.world_size != wanted.world_size:
        raise BadSlot(
            SlotFault.FOREIGN,
            f"it was saved by a job of {owner.world_size} ranks, and this one has"
            f" {wanted.world_size}",
        )


def pack_slot_header(header: SlotHeader, owner: Owner) -> bytes:
    """The header of a whole slot; a multiple of 8 bytes."""
    head = _SLOT.pack(
        WHOLE, VERSION, SLOT_HEADER_BYTES, header.sequence, header.step, header.saved_unix_ns,
        header.layout_bytes, header.payload_bytes, header.layout_checksum, header.blocks_checksum,
        owner.rank, owner.world_size, owner.job, 0,
    )  # fmt: skip
    return head + _CHECKSUM.pack(crc32c(head))


def read_slot_header(data: bytes, slot_bytes: int, owner: Owner) -> SlotHeader:
    """The header of a whole slot.

    Args:
        data: the first bytes of the slot, of which the state word was read first.
        slot_bytes: size of the slot; owner: that it must belong to.

    Raises:
        BadSlot: the slot is not whole, or belongs to another owner. Layout and payload are not
            checked.
    """
    state = int.from_bytes(data[:8], "little")
    if state in (EMPTY, WRITING):
        fault = SlotFault.EMPTY if state == EMPTY else SlotFault.TORN
        raise BadSlot(fault, "it is empty" if state == EMPTY else "a save into it was cut off")
    if state != WHOLE:
        raise BadSlot(SlotFault.FOREIGN, "it does not begin like a slot")
    if len(data) < SLOT_HEADER_BYTES:
        raise BadSlot(SlotFault.TRUNCATED, f"its header has only {len(data)} bytes")
    (
        _, version, header_bytes, sequence, step, saved_unix_ns, layout_bytes, payload_bytes,
        layout_checksum, blocks_checksum, rank, world_size, job, _,
    ) = _SLOT.unpack_from(data)  # fmt: skip
    if version != VERSION or header_bytes != SLOT_HEADER_BYTES:
        raise BadSlot(SlotFault.OTHER_VERSION, f"its version is {version}, not {VERSION}")
    if _CHECKSUM.unpack_from(data, _SLOT.size)[0] != crc32c(data[: _SLOT.size]):
        raise BadSlot(SlotFault.DAMAGED, "its header does not match its checksum")
    require_owner(Owner(rank, world_size, job), owner)
    too_large = layout_bytes > MAX_LAYOUT_BYTES or payload_bytes > _MAX_PAYLOAD_BYTES
    if too_large or places(layout_bytes, payload_bytes).end > slot_bytes:
        raise BadSlot(SlotFault.TRUNCATED, "its header names a size that does not fit into it")
    return SlotHeader(
        sequence, step, saved_unix_ns, layout_bytes, payload_bytes, layout_checksum,
        blocks_checksum,
    )  # fmt: skip
