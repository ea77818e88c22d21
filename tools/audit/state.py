"""What a fuzzing process and the one that watches it share: the input in hand, the findings."""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from pathlib import Path

from tools.audit.mutate import MAX_BYTES

# Inputs begun, when the one in hand began (monotonic clock, seconds), its length in bytes.
_HEAD = struct.Struct("<QdQ")


class Shared:
    """A mapped file; it outlives a process that is killed.

    Args:
        path: of the file; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _HEAD.size + MAX_BYTES)
            self._map = mmap.mmap(descriptor, _HEAD.size + MAX_BYTES)
        finally:
            os.close(descriptor)

    def begin(self, count: int, now_s: float, data: bytes) -> None:
        """An input is about to be tried; what packing has added beyond MAX_BYTES is left out."""
        data = data[:MAX_BYTES]
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, 0, count, now_s, len(data))

    def idle(self, count: int) -> None:
        """None is being tried."""
        _HEAD.pack_into(self._map, 0, count, 0.0, 0)

    def read(self) -> tuple[int, float, bytes]:
        """(count, when the input in hand began, 0.0 for none, and the input)."""
        count, began_s, size = _HEAD.unpack_from(self._map, 0)
        return count, began_s, self._map[_HEAD.size : _HEAD.size + size]


def keep(folder: Path, data: bytes, why: str) -> None:
    """Write an input that went wrong into the folder, and beside it what went wrong."""
    stem = hashlib.sha256(data).hexdigest()[:12]
    (folder / f"{stem}.input").write_bytes(data)
    (folder / f"{stem}.txt").write_text(f"{why.rstrip()}\n", encoding="utf-8", errors="replace")
