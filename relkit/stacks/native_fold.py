"""Large rank sets as text, by librelkit_merge.so."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from itertools import chain
from pathlib import Path

from relkit.ranks import MAX_BITS, RankSet
from relkit.stacks.native_merge import library_path, load_library, packed_intervals

# What the library asks to be free before it writes an item.
_ITEM_CHARS = 64

_WORTH_A_CALL = 16
"""Intervals from which on it is faster to have the library write them."""


class _NativeFold:
    """Writes one set after the other into the same memory.

    Args:
        library: the library.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._text = ctypes.create_string_buffer(_ITEM_CHARS)

    def fold(self, ranks: RankSet, separator: str) -> str:
        """As `RankSet.fold_strided`."""
        bits = ranks.packed() or self._packed(ranks)
        if not bits:
            return ranks.fold_strided(separator)
        digits = len(str(8 * len(bits)))
        # An interval is `,low-high` at most; a step is written once for three of them.
        room = ranks.interval_count * (2 * digits + 2) + _ITEM_CHARS
        if room > len(self._text):
            self._text = ctypes.create_string_buffer(room)
        size = self._library.rkm_fold(
            bits, len(bits), separator.encode("ascii"), self._text, len(self._text)
        )
        return str(memoryview(self._text)[:size], "ascii")

    def _packed(self, ranks: RankSet) -> bytes:
        """The bits of a set that is kept as intervals; b"" where Python writes it as fast."""
        intervals = ranks.intervals
        if len(intervals) < _WORTH_A_CALL or intervals[-1][1] >= MAX_BITS:
            return b""
        pairs = array("i", chain.from_iterable(intervals))
        address, _ = pairs.buffer_info()
        return packed_intervals(self._library, address, len(intervals), intervals[-1][1] // 8 + 1)


def native_fold(path: Path | None = None) -> Callable[[RankSet, str], str] | None:
    """What writes a set as `RankSet.fold_strided` does; None where the library is not built.

    Args:
        path: the library; None takes library_path().
    """
    library = load_library(path or library_path())
    return None if library is None else _NativeFold(library).fold
