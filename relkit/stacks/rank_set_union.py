"""RankSetUnion of many rank sets, fast: as bits of one large number, and each set made once."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.ranks import MAX_BITS, RankSet


class RankSetUnion:
    """Makes unions; equal ones are one object, so a tree holds every distinct set once.

    Args:
        world_size: ranks in the job; sets hold no others.
    """

    def __init__(self, world_size: int) -> None:
        self._small = world_size <= MAX_BITS
        # By identity, since hashing a large set is slow; the set is kept, so its id stays its own.
        self._bits: dict[int, tuple[RankSet, int]] = {}
        self._made: dict[int, RankSet] = {}

    def _bits_of(self, ranks: RankSet) -> int:
        known = self._bits.get(id(ranks))
        if known is None:
            known = self._bits[id(ranks)] = ranks, ranks.bits()
            self._made.setdefault(known[1], ranks)
        return known[1]

    def of(self, sets: Sequence[RankSet]) -> RankSet:
        """The union of one or more sets."""
        if len(sets) == 1:
            return sets[0]
        if not self._small:
            return RankSet.union(sets)
        bits = 0
        for ranks in sets:
            bits |= self._bits_of(ranks)
        union = self._made.get(bits)
        if union is None:
            union = self._made[bits] = RankSet.from_bits(bits)
            self._bits[id(union)] = union, bits
        return union
