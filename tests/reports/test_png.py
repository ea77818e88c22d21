"""The PNG writer: what was written is what a reader of the format finds."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from relkit.reports.drawing.png import indexed

COLOURS = ["#000000", "#ff8000", "#0000ff", "#ffffff"]


def read(data: bytes) -> tuple[NDArray[np.uint8], dict[bytes, bytes]]:
    """Cells and chunks of a four-bit palette PNG; every checksum is looked at."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + body
        )
        chunks[kind] = body
        at += 12 + size
    width, height, bits, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (bits, colour, rest) == (4, 3, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    cells = np.empty((height, 2 * (rows.shape[1] - 1)), np.uint8)
    cells[:, ::2], cells[:, 1::2] = rows[:, 1:] >> 4, rows[:, 1:] & 15
    assert cells.shape[1] - width in (0, 1)
    return cells[:, :width], chunks


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_cells_are_read_back(height: int, width: int, seed: int) -> None:
    cells = np.random.default_rng(seed).integers(0, 4, (height, width)).astype(np.uint8)
    found, chunks = read(indexed(cells, COLOURS, see_through=2))
    np.testing.assert_array_equal(found, cells)
    assert chunks[b"PLTE"] == bytes.fromhex("000000ff80000000ffffffff")
    assert chunks[b"tRNS"] == b"\xff\xff\0"


def test_nothing_to_draw_is_refused() -> None:
    for cells, colours in (
        (np.zeros((0, 4), np.uint8), COLOURS),
        (np.zeros((1, 1), np.uint8), []),
        (np.zeros((1, 1), np.uint8), COLOURS * 5),
    ):
        with pytest.raises(ValueError, match="a picture needs"):
            indexed(cells, colours)
