"""The layout of a payload: which array is where, and the tree of the state. No torch here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.flash_checkpoint.errors import BadSlot, SlotFault
from relkit.foreign_json import parse_json

SCHEMA = "relkit.slot/1"
ALIGNMENT_BYTES = 64
_MAX_DIMENSIONS = 64

# torch's names of what an element may be, and its size in bytes.
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
        name: of it in the state, keys joined by "/"; the first one where it has several.
        dtype: a key of ITEM_BYTES; shape: elements a dimension; offset: in the payload, bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        """What it takes in the payload."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def encode(tree: object, arrays: Sequence[Array]) -> bytes:
    """The layout as JSON."""
    rows = [[array.name, array.dtype, array.shape, array.offset] for array in arrays]
    plain = {"schema": SCHEMA, "arrays": rows, "tree": tree}
    return json.dumps(plain, separators=(",", ":")).encode("ascii")


def decode(data: bytes, payload_bytes: int) -> tuple[Any, tuple[Array, ...]]:
    """The tree and the arrays of a layout that may come from anywhere.

    Args:
        payload_bytes: of the payload that it describes.

    Raises:
        BadSlot: it is none, or an array is not inside the payload, or overlaps the one before.
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
        raise ValueError("an array of it is none")
    if not all(type(count) is int and 0 <= count < 1 << 60 for count in counts):
        raise ValueError("a size in it is none")
    if offset % ALIGNMENT_BYTES:
        raise ValueError("an array is not aligned")
    return Array(name, dtype, tuple(shape), offset)
