"""Loads a state from a slot, and checks every block of it against its checksum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from relkit.flash_checkpoint import snapshot
from relkit.flash_checkpoint.layout import Array
from relkit.flash_checkpoint.slots import native_copy
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.native_copy import BLOCK_BYTES, CopyPool, Piece
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot

_MAX_NAMED = 5


def load(file: SlotFile, slot: WholeSlot, pool: CopyPool) -> Any:  # noqa: ANN401
    """The state in a slot, as a copy.

    Raises:
        BadSlot: a part of it does not match its checksum, or it was overwritten meanwhile.
    """
    header = slot.header
    data = file.layout(slot.index, header)
    state, arrays = snapshot.put_together(data, header.payload_bytes, _new_tensor)
    pieces = [
        (raw.data_ptr(), array.offset, array.size_bytes) for array, raw in arrays if raw.numel()
    ]
    _checked(file, slot, pool, pieces, arrays)
    return state


def verify(file: SlotFile, slot: WholeSlot, pool: CopyPool) -> None:
    """Check a slot against its checksums, without a copy.

    Raises:
        BadSlot: as `load`.
    """
    _checked(file, slot, pool, [], ())


def _checked(
    file: SlotFile,
    slot: WholeSlot,
    pool: CopyPool,
    pieces: Sequence[Piece],
    arrays: Sequence[tuple[Array, Tensor]],
) -> None:
    header = slot.header
    where = form.places(header.layout_bytes, header.payload_bytes)
    checksums = file.checksums(slot.index, where, header.payload_bytes)
    if native_copy.crc32c(checksums) != header.blocks_checksum:
        raise BadSlot(SlotFault.DAMAGED, "its array of checksums does not match its own checksum")
    bad = pool.load(file.payload(slot.index, where, header.payload_bytes), pieces)
    if bad is not None:
        raise BadSlot(SlotFault.DAMAGED, f"{_in_block(bad, arrays)} does not match its checksum")
    if slot not in file.whole():
        raise BadSlot(SlotFault.TORN, "it was given up, or overwritten, while it was read")


def mapped(file: SlotFile, slot: WholeSlot) -> Any:  # noqa: ANN401
    """The state in a slot, with tensors that are views of the slot: nothing is copied.

    The file must be mapped for writing, as torch has no tensors that are read-only. Only the layout
    is checked.

    Raises:
        BadSlot: the layout does not match its checksum.
    """
    header = slot.header
    where = form.places(header.layout_bytes, header.payload_bytes)
    base = file.base(slot.index) + where.payload

    def view(array: Array) -> Tensor:
        start = base + array.offset
        return torch.from_numpy(file.bytes[start : start + array.size_bytes])

    data = file.layout(slot.index, header)
    state, _ = snapshot.put_together(data, header.payload_bytes, view)
    return state


def _new_tensor(array: Array) -> Tensor:
    return torch.empty(array.size_bytes, dtype=torch.uint8)


def _in_block(number: int, arrays: Sequence[tuple[Array, Tensor]]) -> str:
    start, end = number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES
    names = [
        array.name
        for array, _ in arrays
        if array.offset < end and array.offset + array.size_bytes > start
    ]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    what = f" with {', '.join(names[:_MAX_NAMED])}{more}"[:400] if names else ""
    return f"block {number}{what}"
