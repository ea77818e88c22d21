"""Lets two jobs that fill the same cores run by turns, at the word of whoever measures them."""

from __future__ import annotations

import os
from pathlib import Path


class Turns:
    """Of one rank: it waits before every so many steps, as all ranks of its job do.

    Args:
        folder: with the named pipes `go-RANK`, from which each rank reads a byte a turn, and
            `done`, to which rank 0 writes one after it; None where the job runs without a break.
        rank: this one; length: steps of a turn.
    """

    def __init__(self, folder: Path | None, rank: int, length: int) -> None:
        self._length = length
        self._go = self._done = -1
        if folder is None:
            return
        # Both for reading and writing: neither side waits for the other to open, or gets an end.
        self._go = os.open(folder / f"go-{rank}", os.O_RDWR | os.O_CLOEXEC)
        if rank == 0:
            self._done = os.open(folder / "done", os.O_RDWR | os.O_CLOEXEC)

    def wait(self, step: int) -> None:
        """Before a step: at the beginning of a turn, wait until it is this job's."""
        if self._go < 0 or step % self._length:
            return
        if self._done >= 0 and step:
            os.write(self._done, b"d")
        os.read(self._go, 1)

    def end(self) -> None:
        """After the last step."""
        if self._done >= 0:
            os.write(self._done, b"d")
