"""Rank sets as sorted, disjoint intervals: small for any world size, folded like `0-3,7`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

Interval = tuple[int, int]

_LOW, _HIGH = itemgetter(0), itemgetter(1)


def _normalise(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if low > high or low < 0:
            raise ValueError(f"bad rank interval {low}-{high}")
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _gaps(low: int, high: int, cuts: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """What sorted, disjoint and not adjacent intervals leave of one."""
    first = bisect_left(cuts, low, key=_HIGH)
    inside = cuts[first : bisect_right(cuts, high, key=_LOW)]
    starts = [low, *[end + 1 for _, end in inside]]
    ends = [*[start - 1 for start, _ in inside], high]
    # Only the outermost two can be empty.
    skip = starts[0] > ends[0]
    stop = len(starts) - (len(starts) > 1 and starts[-1] > ends[-1])
    return tuple(zip(starts[skip:stop], ends[skip:stop], strict=True))


@dataclass(frozen=True, slots=True)
class RankSet:
    """An immutable set of ranks.

    Args:
        intervals: inclusive (low, high) pairs, sorted, disjoint and not adjacent; use the
            constructors below, which see to that.
    """

    intervals: tuple[Interval, ...] = ()
    # A picture asks for it of every box, and counting goes through all intervals.
    _count: int = field(default=-1, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, ranks: Iterable[int]) -> RankSet:
        """From single ranks, in any order."""
        return cls(_normalise((rank, rank) for rank in ranks))

    @classmethod
    def from_intervals(cls, intervals: Iterable[Interval]) -> RankSet:
        """From inclusive intervals, in any order, overlapping or not."""
        return cls(_normalise(intervals))

    @classmethod
    def unfold(cls, folded: str) -> RankSet:
        """The inverse of `fold`: from `0-2,5`; no ranks for "".

        Raises:
            ValueError: it is none of ours.
        """
        ends = [part.partition("-") for part in folded.split(",") if part]
        return cls.from_intervals((int(low), int(high or low)) for low, _, high in ends)

    @classmethod
    def world(cls, size: int) -> RankSet:
        """All ranks of a world of `size` (0 ranks for 0)."""
        return cls(((0, size - 1),)) if size > 0 else cls()

    def __len__(self) -> int:
        if self._count < 0:
            count = len(self.intervals) + sum([high - low for low, high in self.intervals])
            object.__setattr__(self, "_count", count)
        return self._count

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.intervals:
            yield from range(low, high + 1)

    def __contains__(self, rank: object) -> bool:
        if not isinstance(rank, int):
            return False
        at = bisect_right(self.intervals, rank, key=_LOW)
        return at > 0 and rank <= self.intervals[at - 1][1]

    def __or__(self, other: RankSet) -> RankSet:
        if not other.intervals or self.intervals == other.intervals:
            return self
        if not self.intervals:
            return other
        return RankSet(_normalise(self.intervals + other.intervals))

    def __sub__(self, other: RankSet) -> RankSet:
        if len(self.intervals) == 1:
            return RankSet(_gaps(*self.intervals[0], other.intervals))
        kept: list[Interval] = []
        cuts = other.intervals
        start = 0
        for first, high in self.intervals:
            low = first
            while start < len(cuts) and cuts[start][1] < low:
                start += 1
            i = start
            while i < len(cuts) and cuts[i][0] <= high:
                if cuts[i][0] > low:
                    kept.append((low, cuts[i][0] - 1))
                low = cuts[i][1] + 1
                i += 1
            if low <= high:
                kept.append((low, high))
        return RankSet(tuple(kept))

    def __and__(self, other: RankSet) -> RankSet:
        return self - (self - other)

    def fold(self, separator: str = ",") -> str:
        """`0-2,5` (or `0-2/5` with separator "/", as the xpu_timer guide writes it)."""
        return separator.join(
            [str(low) if low == high else f"{low}-{high}" for low, high in self.intervals]
        )
