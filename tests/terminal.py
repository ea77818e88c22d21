"""What a program draws on a terminal."""

from __future__ import annotations

import os


def drawn_on(terminal: int) -> bytes:
    """All that comes out of our end of a pseudo-terminal until no other end is open; closes it."""
    drawn = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            # How Linux says that the other end is closed.
            piece = b""
        if not piece:
            os.close(terminal)
            return drawn
        drawn += piece
