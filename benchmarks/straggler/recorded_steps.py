"""The steps of a recorded run: places in a sequence of collectives at which its period begins anew.

The launcher's own step segmenter works on a stream of events; a record keeps only collectives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.collect.step_pattern import find_period
from relkit.straggler.model import Floats, Ints

# A stretch off the pattern is a step with something added if so much of the pattern is in it.
_STILL_A_STEP = 0.8


@dataclass(frozen=True, slots=True)
class Step:
    """The collectives of one step.

    Args:
        first, end: half-open range of places in the sequence.
        regular: they are just those of the pattern; False where some were added or left out.
    """

    first: int
    end: int
    regular: bool = True


def infer_steps(keys: Sequence[Hashable], gaps_s: Floats) -> tuple[Step, ...]:
    """Steps by the period of what is communicated; none where nothing repeats three times.

    Args:
        keys: (communicator, operation, bytes) of each collective, in order of start.
        gaps_s: time from the end of the previous collective to the start of each; a step begins
            at the longest usual gap.
    """
    numbers: dict[Hashable, int] = {}
    coded = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    period, _ = find_period(coded)
    if not period:
        return ()
    pattern = _begin_at_longest_gap(coded, _root(_pattern(coded, period)), gaps_s)
    return tuple(_cut(coded, pattern))


def _pattern(coded: Ints, period: int) -> Ints:
    """The period-long stretch that most often follows itself; the earliest where that is a tie."""
    windows = np.lib.stride_tricks.sliding_window_view(coded, period)
    repeats = (windows[:-period] == windows[period:]).all(axis=1)
    seen: Counter[bytes] = Counter()
    where: dict[bytes, int] = {}
    for place in np.flatnonzero(repeats):
        key = windows[place].tobytes()
        seen[key] += 1
        where.setdefault(key, int(place))
    if not seen:
        return coded[:period]
    # Rotations of one pattern repeat almost equally often: the earliest of them is the start.
    most = max(seen.values())
    best = min(where[key] for key, times in seen.items() if times >= 0.5 * most)
    return coded[best : best + period]


def _root(pattern: Ints) -> Ints:
    """The shortest stretch whose repetition the pattern is: several steps may match best."""
    length = len(pattern)
    for part in range(1, length // 2 + 1):
        if length % part == 0 and (pattern.reshape(-1, part) == pattern[:part]).all():
            return pattern[:part]
    return pattern


def _begin_at_longest_gap(coded: Ints, pattern: Ints, gaps_s: Floats) -> Ints:
    period = len(pattern)
    starts = [step.first for step in _cut(coded, pattern) if step.regular]
    rows = np.array(starts, dtype=np.int64)[:, None] + np.arange(period)
    # The gap before the very first collective holds the start of the job.
    usual = np.median(gaps_s[rows[1:] if len(rows) > 1 else rows], axis=0)
    return np.roll(pattern, -int(np.argmax(usual)))


def _cut(coded: Ints, pattern: Ints) -> list[Step]:
    period, count = len(pattern), len(coded)
    windows = np.lib.stride_tricks.sliding_window_view(coded, period)
    whole = set(np.flatnonzero((windows == pattern).all(axis=1)).tolist())
    found: list[Step] = []
    place = off = 0
    while place < count:
        if place in whole:
            found += _between(coded, pattern, off, place)
            found.append(Step(place, place + period))
            place += period
            off = place
        else:
            place += 1
    found += _between(coded, pattern, off, count)
    return found


def _between(coded: Ints, pattern: Ints, first: int, end: int) -> list[Step]:
    """Steps with something added or left out, in a stretch without a regular one."""
    found: list[Step] = []
    need = max(1, int(np.ceil(_STILL_A_STEP * len(pattern))))
    while end - first >= need:
        matched, place, last, begin = 0, first, first, -1
        while place < end and matched < len(pattern):
            ahead = np.flatnonzero(pattern[matched:] == coded[place])
            # Only little may be left out at once, or any evaluation would look like a step.
            if len(ahead) and ahead[0] <= len(pattern) - need:
                matched += int(ahead[0]) + 1
                begin = place if begin < 0 else begin
                last = place + 1
            place += 1
        inside = coded[begin:last] if begin >= 0 else coded[:0]
        common = sum((Counter(inside.tolist()) & Counter(pattern.tolist())).values())
        if matched < need or common < need or last - begin > 2 * len(pattern):
            break
        found.append(Step(begin, last, regular=False))
        first = last
    return found
