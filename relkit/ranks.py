"""Rank sets: small for any world size, folded like `0-3,7`.

A set is kept as its intervals where these are few, else as the bits of one number: bit N is rank N.
The same ranks are always kept in the same way. numpy, for bits that are many or to be read, is
loaded where it is first needed: most commands start and end without it.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]

Interval = tuple[int, int]

FEW = 256
"""Intervals up to which they are kept as such: for so few, bits take more room and time."""

MAX_BITS = 1 << 20
"""At a million ranks a set is 128 KiB. Larger worlds exist only in hostile files."""

LISTED = 16
"""Intervals that a sentence spells out; of a longer list it has the ends, and a count."""

_QUICK = 1 << 22
"""Intervals times ranks up to which bits are made as fast without numpy as with it."""

_LOW, _HIGH = itemgetter(0), itemgetter(1)
_MIN_STRIDE = 3


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


class RankSet:
    """An immutable set of ranks.

    Args:
        intervals: inclusive (low, high) pairs, sorted, disjoint and not adjacent; use the
            constructors below, which see to that.
    """

    __slots__ = ("_bits", "_intervals", "_size")

    def __init__(self, intervals: tuple[Interval, ...] = ()) -> None:
        self._intervals = intervals
        # 0 where the intervals are kept.
        self._bits = 0
        # Counted when first asked for: a merge asks for that of the same sets again and again.
        self._size = -1
        if len(intervals) > FEW and intervals[-1][1] < MAX_BITS:
            lows, highs = zip(*intervals, strict=True)
            self._bits, self._intervals = _bits_of_many(lows, highs), ()

    @classmethod
    def of(cls, ranks: Iterable[int]) -> RankSet:
        """From single ranks, in any order."""
        return cls(_normalise((rank, rank) for rank in ranks))

    @classmethod
    def from_intervals(cls, intervals: Iterable[Interval]) -> RankSet:
        """From inclusive intervals, in any order, overlapping or not."""
        return cls(_normalise(intervals))

    @classmethod
    def from_ends(cls, lows: Sequence[int], highs: Sequence[int]) -> RankSet:
        """From the first and the last ranks of intervals, in any order, overlapping or not.

        Args:
            lows, highs: as many of each; arrays of many are read faster than pairs.
        """
        if len(lows) <= FEW or min(lows) < 0 or max(highs) >= MAX_BITS:
            return cls.from_intervals(zip(lows, highs, strict=True))
        return cls.from_bits(_bits_of_many(lows, highs))

    @classmethod
    def from_bits(cls, bits: int) -> RankSet:
        """From a number whose bit N is 1 for rank N.

        Args:
            bits: of at most MAX_BITS bits.
        """
        if _interval_count(bits) <= FEW:
            return cls(_few(bits))
        made = cls()
        made._bits = bits
        return made

    @classmethod
    def union(cls, sets: Iterable[RankSet]) -> RankSet:
        """All ranks of all sets, in one pass however many there are."""
        kept = [ranks for ranks in sets if ranks]
        few = list(chain.from_iterable(ranks._intervals for ranks in kept))
        large = [ranks._bits for ranks in kept if ranks._bits]
        if not large or any(high >= MAX_BITS for _, high in few):
            return cls.from_intervals(chain.from_iterable(ranks.intervals for ranks in kept))
        bits = _bits_of_many(*zip(*few, strict=True)) if few else 0
        for each in large:
            bits |= each
        return cls.from_bits(bits)

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

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Inclusive (low, high) pairs, sorted, disjoint, not adjacent; of a large set made anew."""
        if not self._bits:
            return self._intervals
        lows, highs = _ends(self._bits)
        return tuple(zip(lows.tolist(), highs.tolist(), strict=True))

    def first_intervals(self, count: int) -> tuple[Interval, ...]:
        """`intervals[:count]`, without making the others of a large set."""
        if not self._bits:
            return self._intervals[:count]
        made: list[Interval] = []
        bits = self._bits
        while bits and len(made) < count:
            low = _lowest(bits)
            after = _lowest(~(bits >> low)) + low
            made.append((low, after - 1))
            bits = bits >> after << after
        return tuple(made)

    def _last_interval(self) -> Interval:
        if not self._bits:
            return self._intervals[-1]
        size = self._bits.bit_length()
        return ((1 << size) - 1 ^ self._bits).bit_length(), size - 1

    @property
    def interval_count(self) -> int:
        """How many intervals there are."""
        return _interval_count(self._bits) if self._bits else len(self._intervals)

    def bits(self) -> int:
        """A number whose bit N is 1 for rank N; as long as its highest rank is high."""
        return self._bits or _bits_of_few(self._intervals)

    def packed(self) -> bytes:
        """The bits, eight ranks a byte, lowest first; b"" of a set that is kept as intervals."""
        return self._bits.to_bytes((self._bits.bit_length() + 7) // 8, "little")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankSet):
            return NotImplemented
        return self._bits == other._bits and self._intervals == other._intervals

    def __hash__(self) -> int:
        return hash(self._bits or self._intervals)

    def __repr__(self) -> str:
        return f"RankSet({self.fold()})"

    def __len__(self) -> int:
        if self._size < 0:
            self._size = (
                self._bits.bit_count()
                if self._bits
                else len(self._intervals) + sum([high - low for low, high in self._intervals])
            )
        return self._size

    def __bool__(self) -> bool:
        return bool(self._bits or self._intervals)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.intervals:
            yield from range(low, high + 1)

    def __contains__(self, rank: object) -> bool:
        if not isinstance(rank, int):
            return False
        if self._bits:
            return rank >= 0 and bool(self._bits >> rank & 1)
        at = bisect_right(self._intervals, rank, key=_LOW)
        return at > 0 and rank <= self._intervals[at - 1][1]

    def __or__(self, other: RankSet) -> RankSet:
        if not other or self == other:
            return self
        return RankSet.union((self, other)) if self else other

    def __sub__(self, other: RankSet) -> RankSet:
        if self._bits or (other._bits and self and self._intervals[-1][1] < MAX_BITS):
            mine = self.bits()
            highest = mine.bit_length() - 1
            cuts = ((low, min(high, highest)) for low, high in other._intervals if low <= highest)
            return RankSet.from_bits(mine & ~(other._bits or _bits_of_few(cuts)))
        return RankSet(_left(self._intervals, other.intervals))

    def __and__(self, other: RankSet) -> RankSet:
        return self - (self - other)

    def fold(self, separator: str = ",") -> str:
        """`0-2,5` (or `0-2/5` with separator "/", as the xpu_timer guide writes it)."""
        if self._bits:
            return _folded(self._bits, separator)
        return separator.join([_span(low, high) for low, high in self._intervals])

    def fold_briefly(self, separator: str = ",", most: int = 4, *, is_counted: bool = True) -> str:
        """The first and the last ranks and how many: `0,2,4,…,99998 (50000 ranks)`.

        Args:
            most: up to so many intervals are all there.
            is_counted: False where the count stands beside it already.
        """
        if self.interval_count <= most:
            return self.fold(separator)
        head = RankSet(self.first_intervals(3)).fold(separator)
        tail = RankSet((self._last_interval(),)).fold(separator)
        count = f" ({len(self)} ranks)" if is_counted else ""
        return f"{head}{separator}…{separator}{tail}{count}"

    def in_words(self) -> str:
        """`rank 2`, `ranks 0-1,3`; `ranks 0,3,6,…,117 (40 ranks)` where a list is long."""
        return f"rank{'s' if len(self) > 1 else ''} {self.fold_briefly(most=LISTED)}"

    def fold_strided(self, separator: str = ",") -> str:
        """`0-3,7`, and `0-99998:2` for a run of single ranks at equal steps (three or more)."""
        if self._bits:
            return _folded_strided(self._bits, separator)
        return separator.join(_strided(self._intervals))


def _few(bits: int) -> tuple[Interval, ...]:
    """The intervals of a number that has few of them, without numpy."""
    # A 1 where an interval begins, and one behind its end. Parts of a text are made faster than
    # anything can look at one bit after the other; the lowest rank stands at the end of it.
    gaps = f"{bits ^ bits << 1:b}".split("1")[::-1]
    behind = list(accumulate([len(gap) + 1 for gap in gaps]))
    lows = [place - 1 for place in behind[:-1:2]]
    highs = [place - 2 for place in behind[1::2]]
    return tuple(zip(lows, highs, strict=True))


def _left(intervals: tuple[Interval, ...], cuts: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """What cuts leave of intervals; both sorted, disjoint and not adjacent."""
    if len(intervals) == 1:
        return _gaps(*intervals[0], cuts)
    kept: list[Interval] = []
    start = 0
    for first, high in intervals:
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
    return tuple(kept)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _strided(intervals: tuple[Interval, ...]) -> Iterator[str]:
    at, count = 0, len(intervals)
    while at < count:
        low, high = intervals[at]
        stop = at
        if low == high and at + 1 < count:
            step = intervals[at + 1][0] - low
            # Single ranks that go on in equal steps; an interval of several ends the run.
            while stop + 1 < count and intervals[stop + 1] == (high + step, high + step):
                high += step
                stop += 1
        if stop - at >= _MIN_STRIDE - 1:
            yield f"{low}-{high}:{step}"
            at = stop + 1
        else:
            yield _span(*intervals[at])
            at += 1


def _bits_of_few(intervals: Iterable[tuple[int, int]]) -> int:
    """The bits of some intervals; each costs the whole number once."""
    bits = 0
    for low, high in intervals:
        bits |= ((1 << (high + 1 - low)) - 1) << low
    return bits


def _bits_of_many(lows: Sequence[int], highs: Sequence[int]) -> int:
    """The bits of any number of intervals, in any order.

    Args:
        lows, highs: the first and last rank of each, 0 <= low and high < MAX_BITS.

    Raises:
        ValueError: one ends before it begins.
    """
    if len(lows) * max(highs) <= _QUICK:
        if any(map(operator.gt, lows, highs)):
            raise ValueError("bad rank interval: one ends before it begins")
        return _bits_of_few(zip(lows, highs, strict=True))
    import numpy as np

    firsts, lasts = np.asarray(lows, np.int64), np.asarray(highs, np.int64)
    if bool((firsts > lasts).any()):
        raise ValueError("bad rank interval: one ends before it begins")
    size = int(lasts.max(initial=-1)) + 2
    begun = np.bincount(firsts, minlength=size) - np.bincount(lasts + 1, minlength=size)
    packed = np.packbits(np.cumsum(begun) > 0, bitorder="little")
    return int.from_bytes(packed.tobytes(), "little")


def _lowest(bits: int) -> int:
    """The place of the lowest bit that is 1."""
    return (bits & -bits).bit_length() - 1


def _interval_count(bits: int) -> int:
    """How many intervals there are."""
    return (bits & ~(bits >> 1)).bit_count()


def _ends(bits: int) -> tuple[Ints, Ints]:
    """The first and the last rank of each interval, ascending."""
    import numpy as np

    raw = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    flags = np.unpackbits(raw, bitorder="little")
    # The last bit is 0 by the size above; before the first one there is none.
    changes = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    if flags[0]:
        changes = np.concatenate(([0], changes))
    return changes[0::2], changes[1::2] - 1


def _folded(bits: int, separator: str) -> str:
    """`0-3,7`: every interval."""
    lows, highs = _ends(bits)
    return _joined(lows, highs, None, separator)


def _folded_strided(bits: int, separator: str) -> str:
    """`0-3,7`, and `0-99998:2` for three or more single ranks at equal steps."""
    import numpy as np

    lows, highs = _ends(bits)
    if len(lows) < _MIN_STRIDE:
        return _joined(lows, highs, None, separator)
    single = lows == highs
    steps = np.where(single[:-1] & single[1:], np.diff(lows), 0)
    changes = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    begin, end = np.concatenate(([0], changes)), np.concatenate((changes, [len(steps)]))
    is_run = (end - begin >= _MIN_STRIDE - 1) & (steps[begin] > 0)
    # The first and the last interval of each run.
    runs: list[tuple[int, int]] = []
    end_before = -1
    for first, last in zip(begin[is_run].tolist(), end[is_run].tolist(), strict=True):
        # A single rank between two runs belongs to the one before it.
        first += first == end_before
        if last - first >= _MIN_STRIDE - 1:
            runs.append((first, last))
            end_before = last
    firsts, lasts = np.array(runs, np.int64).reshape(-1, 2).T
    inside = np.zeros(len(lows) + 1, np.int64)
    inside[firsts] += 1
    inside[lasts + 1] -= 1
    shown = np.cumsum(inside)[:-1] == 0
    shown[firsts] = True
    step = np.zeros(len(lows), np.int64)
    step[firsts] = steps[firsts]
    upper = highs.copy()
    upper[firsts] = highs[lasts]
    return _joined(lows[shown], upper[shown], step[shown], separator)


def _joined(lows: Ints, highs: Ints, steps: Ints | None, separator: str) -> str:
    """`low`, `low-high` or `low-high:step` of each, the last where there is a step."""
    import numpy as np

    digits = _digits(len(str(int(highs[-1]))))
    columns = [(b",", lows, None), (b"-", highs, highs > lows)]
    if steps is not None and steps.any():
        columns.append((b":", steps, steps > 0))
    # Eight bytes each: a mark in the first, then the digits, and zeros where nothing stands.
    words = np.zeros((len(lows), len(columns)), np.uint64)
    for at, (mark, values, is_there) in enumerate(columns):
        text = digits[values] | np.frombuffer(mark.ljust(8, b"\0"), np.uint64)
        words[:, at] = text if is_there is None else np.where(is_there, text, 0)
    joined = words.tobytes().translate(None, b"\0")[1:].decode("ascii")
    return joined if separator == "," else joined.replace(",", separator)


@lru_cache(maxsize=2)
def _digits(width: int) -> NDArray[np.uint64]:
    """Each number of at most `width` digits, as text at the end of eight bytes.

    Args:
        width: 1 to 7.
    """
    import numpy as np

    numbers = np.arange(min(10**width, MAX_BITS))
    written = np.zeros((len(numbers), 8), np.uint8)
    for place in range(width):
        power = 10**place
        digit = numbers // power % 10 + ord("0")
        written[:, 7 - place] = np.where((numbers >= power) | (place == 0), digit, 0)
    return written.view(np.uint64)[:, 0]
