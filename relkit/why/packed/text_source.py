"""A file that somebody named -> its bytes in pieces, unpacked and as UTF-8."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO

from relkit.why.packed.unpacking import PIECE_BYTES, Unpacked, packing_of

_BOMS = (
    (codecs.BOM_UTF8, ""),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Pieces:
    """The content of a stream, piece by piece.

    Args:
        stream: at its beginning.
        head: of it, which was read already.
        keep_bytes: of its end so many are kept in `end`, 0 for none.
    """

    def __init__(self, stream: BinaryIO, head: bytes = b"", keep_bytes: int = 0) -> None:
        self._stream = stream
        self._head = head
        self._keep_bytes = keep_bytes
        self._unpacked: Unpacked | None = None
        self._kept: deque[bytes] = deque()
        self._made = self._as_utf8()
        self.begin = next(self._made, b"")

    def __iter__(self) -> Iterator[bytes]:
        self._keep(self.begin)
        yield self.begin
        for piece in self._made:
            self._keep(piece)
            yield piece

    @property
    def note(self) -> str:
        """What of it was left out, "" where nothing was."""
        return self._unpacked.note if self._unpacked else ""

    @property
    def end(self) -> bytes:
        """The last bytes of what was given."""
        return b"".join(self._kept)[-self._keep_bytes :] if self._keep_bytes else b""

    def _keep(self, piece: bytes) -> None:
        if not self._keep_bytes:
            return
        self._kept.append(piece)
        while sum(map(len, self._kept)) - len(self._kept[0]) >= self._keep_bytes:
            self._kept.popleft()

    def _as_utf8(self) -> Iterator[bytes]:
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
        packing = packing_of(self._head)
        if packing is None:
            yield from self._packed()
            return
        self._unpacked = Unpacked(packing, self._packed())
        yield from self._unpacked

    def _packed(self) -> Iterator[bytes]:
        """As it is on the disk."""
        if self._head:
            yield self._head
        while piece := self._stream.read(PIECE_BYTES):
            yield piece


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
