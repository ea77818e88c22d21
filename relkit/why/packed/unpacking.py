"""Packed bytes (gzip, bzip2, xz, zstd) -> what is in them, piece by piece and never without end."""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

PIECE_BYTES = 1 << 22
# What a packed file may unpack to: it has to end some day.
MAX_UNPACKED_BYTES = 8 << 30
# Unpackers copy what they have not come to: of a small part that costs little, however often one
# stops.
_PACKED_BYTES = 1 << 16
# What a dictionary of xz or zstd may take.
_MAX_WINDOW_BYTES = 128 << 20
# A call of `zstandard` gives all that its input holds, up to 128 KiB for 4 bytes.
_ZSTD_BYTES = 512
# Of zlib: a stream with the head of gzip.
_OF_GZIP = 31


class _Unpacker(Protocol):
    """What bz2, lzma and compression.zstd have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib's, with the same face."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_OF_GZIP)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


class _OldZstd:
    """That of the package `zstandard`, with the same face."""

    def __init__(self, package: Any) -> None:  # noqa: ANN401
        self._stream = package.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
        self._left = b""

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    @property
    def needs_input(self) -> bool:
        return not self._left

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data) + self._left

    def decompress(self, data: bytes, max_length: int) -> bytes:
        data = self._left + data
        ready, at = bytearray(), 0
        while at < len(data) and len(ready) < max_length and not self.eof:
            ready += self._stream.decompress(data[at : at + _ZSTD_BYTES])
            at += _ZSTD_BYTES
        self._left = data[at:]
        return bytes(ready)


def _zstd() -> Callable[[], _Unpacker] | None:
    """Of the standard library from Python 3.14 on, else of `zstandard` where that is installed."""
    try:
        new = importlib.import_module("compression.zstd")
    except ImportError:
        pass
    else:
        options = {new.DecompressionParameter.window_log_max: _MAX_WINDOW_BYTES.bit_length() - 1}
        return lambda: new.ZstdDecompressor(options=options)
    try:
        old = importlib.import_module("zstandard")
    except ImportError:
        return None
    return lambda: _OldZstd(old)


@dataclass(frozen=True, slots=True)
class Packing:
    """A way of packing.

    Args:
        name: of it; magic: that its files begin with; make: an unpacker, None where none is here.
    """

    name: str
    magic: bytes
    make: Callable[[], _Unpacker] | None


PACKINGS = (
    Packing("gzip", b"\x1f\x8b", _Gzip),
    Packing("bzip2", b"BZh", bz2.BZ2Decompressor),
    Packing("xz", b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(memlimit=_MAX_WINDOW_BYTES)),
    Packing("zstd", b"\x28\xb5\x2f\xfd", _zstd()),
)
NO_ZSTD = "packed with zstd: `pip install zstandard`, or unpack it: `zstd -d FILE`"
_DAMAGED = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def packing_of(head: bytes) -> Packing | None:
    """How a file is packed, by its first bytes; None for one that is not."""
    return next((each for each in PACKINGS if head.startswith(each.magic)), None)


class Unpacked:
    """What is in packed bytes, as far as that goes: of a damaged file as well.

    Args:
        packing: of them; packed: in pieces of any size.
    """

    def __init__(self, packing: Packing, packed: Iterable[bytes]) -> None:
        self._packing = packing
        self._packed = packed
        self.note = "" if packing.make else NO_ZSTD

    def __iter__(self) -> Iterator[bytes]:
        ready = bytearray()
        for piece in self._steps():
            ready += piece
            if len(ready) >= PIECE_BYTES:
                yield bytes(ready)
                ready.clear()
        yield bytes(ready)

    def first(self) -> bytes:
        """The first part of it, of some KB at least where there is so much."""
        ready = bytearray()
        for piece in self._steps():
            ready += piece
            if len(ready) >= _PACKED_BYTES:
                break
        return bytes(ready)

    def _steps(self) -> Iterator[bytes]:
        if self._packing.make is None:
            return
        unpacker, given, is_whole = self._packing.make(), 0, False
        for data in self._small_parts():
            while True:
                try:
                    piece = unpacker.decompress(data, PIECE_BYTES)
                except _DAMAGED as error:
                    # Padding, as of tapes, is none of its content.
                    self.note = "" if is_whole else self._damaged(given, error)
                    return
                data, is_whole = b"", False
                given += len(piece)
                yield piece
                if given >= MAX_UNPACKED_BYTES:
                    self.note = f"only its first {MAX_UNPACKED_BYTES >> 30} GiB were unpacked"
                    return
                if unpacker.eof:
                    # Logs that were rotated are joined packed.
                    data, is_whole = unpacker.unused_data, True
                    unpacker = self._packing.make()
                    if data and not data.startswith(self._packing.magic[: len(data)]):
                        return
                    if not data:
                        break
                elif unpacker.needs_input:
                    break
        if not is_whole:
            self.note = f"it is cut behind {given} bytes"

    def _small_parts(self) -> Iterator[bytes]:
        for packed in self._packed:
            for start in range(0, len(packed), _PACKED_BYTES):
                yield packed[start : start + _PACKED_BYTES]

    @staticmethod
    def _damaged(given: int, error: Exception) -> str:
        return f"it is damaged behind {given} bytes: {error}"
