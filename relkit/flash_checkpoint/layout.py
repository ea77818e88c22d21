"""The layout of a payload: where each array is, and the tree of the state. No torch here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.text.foreign_json import parse_json

SCHEMA = "relkit.slot/1"
ALIGNMENT_BYTES = 64
_MAX_DIMENSIONS = 64

# Size of an element in bytes, by torch's name of its type.
ITEM_BYTES: Mapping[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """One array in the payload.

    Args:
        name: path to it in the state, keys joined by "/"; the first one if there are several.
        dtype: a key of ITEM_BYTES; shape: as torch's; offset: in the payload, bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        """Its size in the payload."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def encode(tree: object, arrays: Sequence[Array]) -> bytes:
    """The layout as JSON."""
    rows = [[array.name, array.dtype, array.shape, array.offset] for array in arrays]
    plain = {"schema": SCHEMA, "arrays": rows, "tree": tree}
    return json.dumps(plain, separators=(",", ":")).encode("ascii")


def decode(data: bytes, payload_bytes: int) -> tuple[Any, tuple[Array, ...]]:
    """The tree and the arrays of a layout. The data is not trusted.

    Args:
        payload_bytes: size of the payload that it describes.

    Raises:
        BadSlot: it is not a layout, or arrays overlap or lie outside of the payload.
    """
    try:
        plain = parse_json(data)
        if plain["schema"] != SCHEMA:
            raise BadSlot(SlotFault.OTHER_VERSION, f"its layout is a {plain['schema']!r}"[:200])
        arrays = tuple(_array(*row) for row in plain["arrays"])
        tree = plain["tree"]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadSlot(SlotFault.DAMAGED, f"its layout cannot be read: {error}"[:200]) from error
    end = 0
    for array in arrays:
        if array.offset < end or array.offset + array.size_bytes > payload_bytes:
            raise BadSlot(SlotFault.DAMAGED, f"{array.name[:200]!r} is not inside the payload")
        end = array.offset + array.size_bytes
    return tree, arrays


def _array(name: str, dtype: str, shape: list[int], offset: int) -> Array:
    counts = (*shape, offset)
    if not isinstance(name, str) or dtype not in ITEM_BYTES or len(shape) > _MAX_DIMENSIONS:
        raise ValueError("an entry is not an array")
    if not all(type(count) is int and 0 <= count < 1 << 60 for count in counts):
        raise ValueError("a size is not a number from 0 on")
    if offset % ALIGNMENT_BYTES:
        raise ValueError("an array is not aligned")
    return Array(name, dtype, tuple(shape), offset)
