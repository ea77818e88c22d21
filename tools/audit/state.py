"""What a fuzzing process and the one that watches it share: the input in hand, the findings."""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path

from tools.audit.mutate import MAX_BYTES

# Inputs begun, when the one in hand began (monotonic clock, seconds), its length in bytes.
_HEAD_BYTES = 24


class Shared:
    """A mapped file; it outlives a process that is killed.

    Args:
        path: of the file; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _HEAD_BYTES + MAX_BYTES)
            self._map = mmap.mmap(descriptor, _HEAD_BYTES + MAX_BYTES)
        finally:
            os.close(descriptor)
        # Each is stored whole. struct.pack_into clears all of its bytes first, and a reader in
        # between would see a process that has not begun.
        words = memoryview(self._map)
        self._count, self._began_s = words[:8].cast("Q"), words[8:16].cast("d")
        self._size = words[16:_HEAD_BYTES].cast("Q")

    def begin(self, count: int, now_s: float, data: bytes) -> None:
        """An input is about to be tried; what packing has added beyond MAX_BYTES is left out."""
        data = data[:MAX_BYTES]
        self._map[_HEAD_BYTES : _HEAD_BYTES + len(data)] = data
        self._count[0], self._began_s[0], self._size[0] = count, now_s, len(data)

    def idle(self, count: int) -> None:
        """None is being tried."""
        self._count[0], self._began_s[0], self._size[0] = count, 0.0, 0

    def read(self) -> tuple[int, float, bytes]:
        """(count, when the input in hand began, 0.0 for none, and the input)."""
        end = _HEAD_BYTES + self._size[0]
        return self._count[0], self._began_s[0], self._map[_HEAD_BYTES:end]


def keep(folder: Path, data: bytes, why: str) -> None:
    """Write an input that went wrong into the folder, and beside it what went wrong."""
    stem = hashlib.sha256(data).hexdigest()[:12]
    (folder / f"{stem}.input").write_bytes(data)
    (folder / f"{stem}.txt").write_text(f"{why.rstrip()}\n", encoding="utf-8", errors="replace")
