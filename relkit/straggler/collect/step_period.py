"""Where the steps of a training loop begin, told by the period of its collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from relkit.straggler.model import Floats, Ints

# A period must explain this share of the sequence; an evaluation is allowed to be the rest.
LEAST_MATCH = 0.6
# Of periods that explain about as much as the best one, the shortest is the step.
_AS_GOOD = 0.03
_LONGEST = 4096
_LEAST_REPEATS = 3
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


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps found in a sequence of collectives, oldest first.

    Args:
        pattern: what one step consists of; () where no period was found, or marks were given.
        steps: they do not overlap; what lies between two belongs to no step (evaluation,
            checkpoint).
        exact: by marks, not inferred.
        match: share of the sequence that repeats after one period, 0..1.
    """

    pattern: tuple[Hashable, ...]
    steps: tuple[Step, ...]
    exact: bool = False
    match: float = 0.0


def steps_by_marks(starts_s: Floats, marks_s: Floats) -> Steps:
    """Exact steps, where the loop says itself when one begins.

    Args:
        starts_s: starts of the collectives, ascending; marks_s: starts of steps, ascending, on
            the same clock. What is before the first mark or after the last is in no step.
    """
    cuts = np.searchsorted(starts_s, marks_s, side="left")
    found = [Step(int(a), int(b)) for a, b in pairwise(cuts)]
    return Steps((), tuple(found), exact=True, match=1.0)


def infer_steps(keys: Sequence[Hashable], gaps_s: Floats | None = None) -> Steps:
    """Steps by the period of what is communicated.

    Ranks with the same sequence get the same steps, given the same gaps: pass the mean gaps of
    all of them, because on each alone noise may make another gap the longest. A loop whose
    collectives are all alike has a period of one, however many it issues a step; one that
    evaluates every few steps may have the period of its evaluations: give marks there.

    Args:
        keys: (communicator, operation, bytes) of each collective, in order of start.
        gaps_s: time from the end of the previous collective to the start of each, mean over the
            ranks; where given, a step begins at the longest usual gap, else where the first whole
            period does.

    Returns:
        No steps where nothing repeats at least three times.
    """
    numbers: dict[Hashable, int] = {}
    coded = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    period, match = find_period(coded)
    if not period:
        return Steps((), (), match=match)
    pattern = _root(_pattern(coded, period))
    if gaps_s is not None:
        pattern = _begin_at_longest_gap(coded, pattern, gaps_s)
    found = _cut(coded, pattern)
    named = list(numbers)
    return Steps(tuple(named[number] for number in pattern), tuple(found), match=match)


def find_period(coded: Ints) -> tuple[int, float]:
    """(period, share of the sequence that repeats after it); period 0 where there is none.

    Args:
        coded: what is communicated, one number for each kind.
    """
    count = len(coded)
    longest = min(_LONGEST, count // _LEAST_REPEATS)
    if longest < 1:
        return 0, 0.0
    shares = np.array(
        [np.count_nonzero(coded[p:] == coded[:-p]) / (count - p) for p in range(1, longest + 1)]
    )
    best = float(shares.max())
    if best < LEAST_MATCH:
        return 0, best
    period = int(np.argmax(shares >= best - _AS_GOOD)) + 1
    return period, float(shares[period - 1])


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
