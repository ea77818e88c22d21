"""RankSetUnion of many rank sets, fast: as bits of one large number, and each set made once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from relkit.ranks import RankSet

# One bit a rank: at a million ranks a set is 128 KiB. Larger worlds exist only in hostile files.
_MAX_BITS = 1 << 20
_RUN = re.compile("1+")


def _bits(ranks: RankSet) -> int:
    if not ranks:
        return 0
    digits = bytearray(b"0") * (ranks.intervals[-1][1] + 1)
    for low, high in ranks.intervals:
        digits[low : high + 1] = b"1" * (high + 1 - low)
    digits.reverse()
    # int() reads base 2 in linear time, unlike OR-ing one interval after the other.
    return int(digits, 2)


def _ranks(bits: int) -> RankSet:
    digits = f"{bits:b}"[::-1]
    spans = [run.span() for run in _RUN.finditer(digits)]
    return RankSet(tuple([(start, end - 1) for start, end in spans]))


class RankSetUnion:
    """Makes unions; equal ones are one object, so a tree holds every distinct set once.

    Args:
        world_size: ranks in the job; sets hold no others.
    """

    def __init__(self, world_size: int) -> None:
        self._small = world_size <= _MAX_BITS
        # By identity, since hashing a large set is slow; the set is kept, so its id stays its own.
        self._bits: dict[int, tuple[RankSet, int]] = {}
        self._made: dict[int, RankSet] = {}

    def _bits_of(self, ranks: RankSet) -> int:
        known = self._bits.get(id(ranks))
        if known is None:
            known = self._bits[id(ranks)] = ranks, _bits(ranks)
            self._made.setdefault(known[1], ranks)
        return known[1]

    def of(self, sets: Sequence[RankSet]) -> RankSet:
        """The union of one or more sets."""
        if len(sets) == 1:
            return sets[0]
        if not self._small:
            return RankSet.from_intervals(chain.from_iterable(s.intervals for s in sets))
        bits = 0
        for ranks in sets:
            bits |= self._bits_of(ranks)
        union = self._made.get(bits)
        if union is None:
            union = self._made[bits] = _ranks(bits)
            self._bits[id(union)] = union, bits
        return union
