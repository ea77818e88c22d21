"""A page that the ranks of an incident and its maker share: who has come how far."""

from __future__ import annotations

import mmap
import time

_PAGE_BYTES = 4096
_FAULT, _DUMP, _OF_RANKS, _EACH = 0, 1, 2, 3
_CALLS, _DUMPED, _ENDED = range(_EACH)
_LOOK_S = 0.02


class TooLong(Exception):
    """An incident did not come about in time."""


class Board:
    """Made before the ranks are forked.

    Args:
        ranks: of the job; limit_s: for all that is waited for.
    """

    def __init__(self, ranks: int, limit_s: float) -> None:
        self._cells = memoryview(mmap.mmap(-1, _PAGE_BYTES)).cast("Q")
        self._ranks = ranks
        self._end_s = time.monotonic() + limit_s

    def _cell(self, rank: int, which: int) -> int:
        return _OF_RANKS + rank * _EACH + which

    def came(self, rank: int) -> None:
        """The rank has done some more."""
        self._cells[self._cell(rank, _CALLS)] += 1

    def has_fault(self) -> None:
        """The fault has come about."""
        self._cells[_FAULT] = 1

    def wants_dumps(self) -> bool:
        """Whether ranks shall write what they know."""
        return bool(self._cells[_DUMP])

    def ask_for_dumps(self) -> None:
        """Have them do it."""
        self._cells[_DUMP] = 1

    def has_dumped(self, rank: int) -> None:
        """The rank has written all."""
        self._cells[self._cell(rank, _DUMPED)] = 1

    def has_ended(self, rank: int) -> None:
        """The rank has come to the end of its script."""
        self._cells[self._cell(rank, _ENDED)] = 1

    def wait_hung(self, settle_s: float) -> None:
        """Until the fault has come about, and nobody has gone on for that long, s."""
        before, since_s = -1, time.monotonic()
        while not self._cells[_FAULT] or time.monotonic() - since_s < settle_s:
            now = sum(self._cells[self._cell(rank, _CALLS)] for rank in range(self._ranks))
            if now != before:
                before, since_s = now, time.monotonic()
            self._look_again("the job does not hang")

    def wait_calls(self, count: int) -> None:
        """Until each rank has come that far."""
        while min(self._cells[self._cell(r, _CALLS)] for r in range(self._ranks)) < count:
            self._look_again("the job does not go on")

    def wait_ended(self) -> None:
        """Until all have ended."""
        while not all(self._cells[self._cell(r, _ENDED)] for r in range(self._ranks)):
            self._look_again("the job does not end")

    def wait_dumped(self, alive: list[int]) -> None:
        """Until these have written all."""
        while not all(self._cells[self._cell(rank, _DUMPED)] for rank in alive):
            self._look_again("a rank does not write its dump")

    def _look_again(self, what: str) -> None:
        if time.monotonic() > self._end_s:
            raise TooLong(what)
        time.sleep(_LOOK_S)
