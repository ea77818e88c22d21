"""A file that somebody named -> its bytes in pieces, unpacked and as UTF-8."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from typing import BinaryIO

PIECE_BYTES = 1 << 22
# zlib copies what it has not come to: of a small part that costs little, however often it stops.
_PACKED_BYTES = 1 << 16
# What a packed file may unpack to: it has to end some day.
MAX_UNPACKED_BYTES = 8 << 30
_GZIP = b"\x1f\x8b"
_BOMS = (
    (codecs.BOM_UTF8, ""),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Of zlib: a stream with the head of gzip.
_OF_GZIP = 31


class Pieces:
    """The content of a stream, piece by piece.

    Args:
        stream: at its beginning.
        head: of it, which was read already.
    """

    def __init__(self, stream: BinaryIO, head: bytes = b"") -> None:
        self._stream = stream
        self._head = head
        self.note = ""

    def __iter__(self) -> Iterator[bytes]:
        raw = self._raw()
        first = next(raw, b"")
        encoding, skip = encoding_of(first)
        if not encoding:
            yield first[skip:]
            yield from raw
            return
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(first[skip:]).encode("utf-8", "replace")
        for piece in raw:
            yield decoder.decode(piece).encode("utf-8", "replace")

    def _raw(self) -> Iterator[bytes]:
        if self._head.startswith(_GZIP):
            yield from self._unpacked()
            return
        yield from self._packed()

    def _packed(self) -> Iterator[bytes]:
        """As it is on the disk."""
        if self._head:
            yield self._head
        while piece := self._stream.read(PIECE_BYTES):
            yield piece

    def _small_parts(self) -> Iterator[bytes]:
        for packed in self._packed():
            for start in range(0, len(packed), _PACKED_BYTES):
                yield packed[start : start + _PACKED_BYTES]

    def _unpacked(self) -> Iterator[bytes]:
        """Of gzip, as far as that goes: of a damaged file as well."""
        unpacker, given, is_whole = zlib.decompressobj(_OF_GZIP), 0, False
        ready = bytearray()
        for data in self._small_parts():
            while data:
                try:
                    piece = unpacker.decompress(data, PIECE_BYTES)
                except zlib.error as error:
                    self.note = f"it is damaged behind {given} bytes: {error}"
                    yield bytes(ready)
                    return
                given += len(piece)
                ready += piece
                if len(ready) >= PIECE_BYTES:
                    yield bytes(ready)
                    ready.clear()
                if given >= MAX_UNPACKED_BYTES:
                    yield bytes(ready)
                    self.note = f"only its first {MAX_UNPACKED_BYTES >> 30} GiB were unpacked"
                    return
                data, is_whole = unpacker.unconsumed_tail, unpacker.eof
                if is_whole:
                    # Logs that were rotated are joined packed.
                    data = unpacker.unused_data
                    unpacker = zlib.decompressobj(_OF_GZIP)
                    if data and not data.startswith(_GZIP[: len(data)]):
                        # Padding, as of tapes.
                        yield bytes(ready)
                        return
        yield bytes(ready)
        if not is_whole:
            self.note = f"it is cut behind {given} bytes"


def encoding_of(head: bytes) -> tuple[str, int]:
    """The encoding of a text that is not UTF-8 or the like, and how many bytes tell it.

    Returns:
        "" for UTF-8, and all that is read as if it were.
    """
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding, len(mark)
    some = head[:512]
    if len(some) >= 16 and not len(some) % 2:
        # PowerShell's logs without a mark: every other byte of plain text is zero.
        if some[1::2].count(0) > 0.8 * len(some) / 2 and some[::2].count(0) == 0:
            return "utf-16-le", 0
        if some[::2].count(0) > 0.8 * len(some) / 2 and some[1::2].count(0) == 0:
            return "utf-16-be", 0
    return "", 0


def unpacked_head(head: bytes) -> bytes:
    """The beginning of a file as UTF-8.

    Args:
        head: as it is on the disk.
    """
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(_OF_GZIP).decompress(head, 1 << 16)
        except zlib.error:
            return b""
    encoding, skip = encoding_of(head)
    if encoding:
        return head[skip:].decode(encoding, "replace").encode("utf-8", "replace")
    return head[skip:]
