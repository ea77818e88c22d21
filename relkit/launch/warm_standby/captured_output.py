"""What imports of a standby write: kept until the script would have made them.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_MAX_OUTPUT_BYTES = 1 << 20


class CapturedOutput:
    """What is written between keep() and stop() is kept, until show() writes it to 1 and 2."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._real: list[int] = []

    def keep(self) -> None:
        """Begin: the descriptors 1 and 2 are not those of the worker yet."""
        self._kept = [os.memfd_create(f"relkit-standby-{number}") for number in (1, 2)]
        self._real = [os.dup(number) for number in (1, 2)]
        for number, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, number)

    def stop(self) -> None:
        """Later output goes where it did before."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, real in zip((1, 2), self._real, strict=False):
            os.dup2(real, number)
            os.close(real)

    def show(self) -> None:
        """Write what was kept."""
        for number, kept in zip((1, 2), self._kept, strict=False):
            text = os.pread(kept, _MAX_OUTPUT_BYTES, 0)
            os.close(kept)
            # Nobody may read there any more, which the script will find out by itself.
            with suppress(OSError):
                while text:
                    text = text[os.write(number, text) :]
