"""A PNG with a palette, written with zlib alone: pictures of many cells, small and crisp."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS = 4


def indexed(cells: NDArray[np.uint8], colours: Sequence[str], *, see_through: int = -1) -> bytes:
    """The picture, a pixel a cell.

    Format: https://www.w3.org/TR/png-3/ (colour type 3, four bits a pixel).

    Args:
        cells: (rows, columns), each the number of a colour.
        colours: "#rrggbb", 16 at most.
        see_through: number of a colour that shows what is behind the picture; -1 = none.

    Raises:
        ValueError: no cells, or too many colours.
    """
    if cells.ndim != 2 or not cells.size or not 0 < len(colours) <= 1 << _BITS:
        raise ValueError("a picture needs cells, and 1 to 16 colours")
    height, width = cells.shape
    even = np.zeros((height, width + width % 2), np.uint8)
    even[:, :width] = cells
    rows = np.zeros((height, 1 + even.shape[1] // 2), np.uint8)  # a row begins with its filter: 0
    rows[:, 1:] = even[:, ::2] << _BITS | even[:, 1::2]
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, _BITS, 3, 0, 0, 0)),
        (b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in colours)),
    ]
    if see_through >= 0:
        parts.append((b"tRNS", b"\xff" * see_through + b"\0"))
    parts += [(b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
