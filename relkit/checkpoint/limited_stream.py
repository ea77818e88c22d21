"""A stream that writes no faster than a limit, and counts what it has written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import BinaryIO

_PART_BYTES = 4 << 20


class LimitedStream:
    """Passes on what is written, in parts, with pauses between them.

    Args:
        stream: that it writes to.
        max_bytes_per_s: the limit; 0: none.
        clock, pause: time.monotonic and time.sleep.
    """

    def __init__(
        self,
        stream: BinaryIO,
        max_bytes_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stream, self._max_bytes_per_s = stream, max_bytes_per_s
        self._clock, self._pause = clock, pause
        self._began_s = clock()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        """As of any stream."""
        whole = memoryview(data).cast("B")
        for start in range(0, len(whole), _PART_BYTES):
            part = whole[start : start + _PART_BYTES]
            self._stream.write(part)
            self.size_bytes += len(part)
            if self._max_bytes_per_s:
                due_s = self._began_s + self.size_bytes / self._max_bytes_per_s
                self._pause(max(0.0, due_s - self._clock()))
        return len(whole)

    def flush(self) -> None:
        """As of any stream."""
        self._stream.flush()
