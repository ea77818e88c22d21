"""Which collectives tell the steps of a loop apart, learnt from what one rank communicates.

Every rank learns alone, and ranks that do equal work must come to the same steps with the same
numbers. So nothing here looks at the name of a group or at how events were batched. Of every group
the collectives are taken by their sequence numbers, which two threads cannot swap as they can swap
the order of ends. The group with the fewest rounds a step sets the pace. Time is looked at only
where all collectives are alike: bursts of them (the buckets of a backward pass over equal layers)
are told apart by the pauses between, which all ranks have at the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relkit.hook.model import OpKind
from relkit.straggler.collect.event_rows import GC_MARK, INPUT_MARK, P2P_TRACK, Codes, Rows
from relkit.straggler.collect.local_time import covered
from relkit.straggler.model import Flags, Ints

# The first third of what was seen may be the start of the job, which is like nothing later.
_START = 1.0 / 3.0
_REPEATS = 4
# Where all that is seen is alike, it may be a part of a step; more so in a rank that has another
# group of which nothing was seen.
_REPEATS_ALIKE, _REPEATS_ALIKE_OF_MANY = 12, 128
# Among few collectives an evaluation is unlikely, and a wrong period is not.
_FEW, _MATCH_OF_FEW = 128, 0.9
_SAME_PACE = 1.3
_LONGEST_TAIL = 1536
# Bursts: so many must have been seen, of so many collectives at most, and the pause before them is
# so many times as long as any inside.
_BURSTS, _LONGEST_BURST, _STANDS_OUT = 5, 128, 2.0
# Among fewer pauses, two in turn of which one is longer are found by chance inside one long burst.
_MIN_PAUSES = 32
# Where batches are fetched they tell the steps; after so many collectives without they do not.
_AWAIT_BATCHES = 512
_UNEVEN, _LOW_PERCENTILE, _HIGH_PERCENTILE, _MIN_REGULAR = 3.0, 20.0, 60.0, 0.75
_TICK_NS = 10_000.0
# After so many collectives of all groups nobody is waited for any more.
_PATIENCE = 2048
# A period must explain this share of the sequence; an evaluation is allowed to be the rest.
MIN_MATCH = 0.6
# Of periods that explain about as much as the best one, the shortest is the step. What comes in
# between once in so many steps (a log, a checkpoint) does not make one step of them all.
_RARE = 32
_MAX_PERIOD = 4096
_MIN_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Pattern:
    """A step is these collectives of one communicator, with successive sequence numbers.

    Args:
        communicator: by index, or P2P_TRACK.
        codes: what they are, in the rotation that begins with the least.
        phase: sequence number of the first, modulo their number, where the codes are all alike and
            do not tell; -1 where they do.
    """

    communicator: int
    codes: tuple[int, ...]
    phase: int = -1

    def places(self, seqs: Ints, codes: Codes) -> Flags:
        """Where a step may begin, in collectives of this communicator by sequence number."""
        period = len(self.codes)
        begins = np.zeros(len(seqs), dtype=bool)
        if len(seqs) < period:
            return begins
        windows = np.lib.stride_tricks.sliding_window_view(codes, period)
        whole = (windows == np.array(self.codes, np.uint64)).all(axis=1)
        last = len(seqs) - period + 1
        begins[:last] = whole & (seqs[period - 1 :] - seqs[:last] == period - 1)
        if self.phase >= 0:
            begins &= seqs % period == self.phase
        return begins


@dataclass(frozen=True, slots=True)
class _Track:
    """The recent collectives of one group, by sequence number.

    Args:
        period: collectives a round, 0 where it does not repeat; silent: operations of others
            since its newest.
        first_seq: sequence number of the oldest; starts_ns: of each; free_ns: when it and all
            before it had ended.
    """

    communicator: int
    codes: Codes
    period: int
    silent: int
    first_seq: int
    starts_ns: Ints
    free_ns: Ints

    @property
    def rounds(self) -> float:
        """How often it has repeated."""
        return len(self.codes) / self.period if self.period else 0.0

    def may_still_repeat(self, total: int) -> bool:
        """It was seen late and seldom: perhaps it is what happens once a step."""
        if self.rounds >= _REPEATS or self.silent * 3 > total * 2 or total > _PATIENCE:
            return False
        return self.period > 0 or len(self.codes) < 2 * _REPEATS * len(np.unique(self.codes))

    def alive(self, total: int) -> bool:
        """It still goes on."""
        return self.silent * self.rounds <= 3 * total


def find_pattern(rows: Rows, sizes: Mapping[int, int]) -> Pattern | None:
    """The pattern of a step, or None as long as too little has repeated.

    Args:
        rows: collectives, sends and receives, by ticket; `seq` of sends and receives counts them.
        sizes: ranks in each communicator, by index.
    """
    marks = rows[rows["mark"] > 0]
    p2p = rows["kind"] == OpKind.P2P
    rows = rows[p2p | ((rows["kind"] == OpKind.COLLECTIVE) & (rows["seq"] >= 0))]
    rows["communicator"][rows["kind"] == OpKind.P2P] = P2P_TRACK
    tracks = _tracks(rows)
    collective = [track for track in tracks if track.communicator != P2P_TRACK]
    if any(track.may_still_repeat(len(rows)) for track in collective):
        return None
    regular = [track for track in collective if track.period and track.alive(len(rows))]
    regular = regular or [t for t in tracks if t.period and t.communicator == P2P_TRACK]
    if not regular:
        return None
    slowest = min(track.rounds for track in regular)
    pace = [track for track in regular if track.rounds <= _SAME_PACE * slowest]
    chosen = min(pace, key=lambda t: (-sizes.get(t.communicator, 0), t.period, t.communicator))
    alike = len(regular) == 1 and chosen.period == 1
    need = (_REPEATS_ALIKE if len(sizes) <= 1 else _REPEATS_ALIKE_OF_MANY) if alike else _REPEATS
    if chosen.rounds < need:
        return None
    if alike:
        return _of_bursts(chosen, marks)
    return Pattern(chosen.communicator, _least_rotation(chosen.codes[-chosen.period :]))


def _tracks(rows: Rows) -> list[_Track]:
    total = len(rows)
    tail = rows[int(total * _START) :][-_LONGEST_TAIL:]
    numbers = [int(n) for n in np.unique(tail["communicator"]) if n == P2P_TRACK or n >= 0]
    return [_track(number, tail) for number in numbers]


def _track(number: int, tail: Rows) -> _Track:
    places = np.flatnonzero(tail["communicator"] == number)
    mine = tail[places]
    mine = mine[np.argsort(mine["seq"], kind="stable")]
    broken = np.flatnonzero(np.diff(mine["seq"]) != 1)
    if len(broken):
        mine = mine[int(broken[-1]) + 1 :]
    codes: Codes = np.ascontiguousarray(mine["code"])
    _, coded = np.unique(codes, return_inverse=True)
    period, match = find_period(coded.astype(np.int64))
    if len(codes) < _FEW and match < _MATCH_OF_FEW:
        period = 0
    period = _primitive(codes, period) if period else 0
    # Now it must repeat, whatever was before.
    if period and (codes[-period:] != codes[-2 * period : -period]).any():
        period = 0
    silent = len(tail) - 1 - int(places[-1])
    free_ns = np.maximum.accumulate(mine["end_ns"])
    # Two threads may start them in the other order.
    starts_ns = np.maximum.accumulate(mine["start_ns"])
    return _Track(number, codes, period, silent, int(mine["seq"][0]), starts_ns, free_ns)


def _of_bursts(track: _Track, marks: Rows) -> Pattern | None:
    """One collective a step, or a burst of them: between two batches, or between two pauses."""
    code = int(track.codes[-1])
    batches = _batches(track, marks)
    is_fetching = bool((marks["mark"] == INPUT_MARK).any())
    if is_fetching and len(batches) <= _REPEATS and len(track.codes) < _AWAIT_BATCHES:
        return None
    burst = _by_input(batches) or _by_pauses(track, marks)
    if burst is not None:
        length, place = burst
        phase = (track.first_seq + place) % length if length > 1 else -1
        return Pattern(track.communicator, (code,) * length, phase)
    pauses = track.starts_ns[1:] - track.free_ns[:-1]
    # Few may be those of one burst in which every second one is long.
    usual = float(np.percentile(pauses, 25 if len(pauses) < _MIN_PAUSES else 50))
    uneven = np.percentile(pauses, 95) > _UNEVEN * max(usual, _TICK_NS)
    if uneven and len(pauses) < _LONGEST_BURST * _BURSTS:
        return None
    return Pattern(track.communicator, (code,))


def _batches(track: _Track, marks: Rows) -> Ints:
    """The place of the first collective after each batch of input."""
    got_ns = np.sort(marks["end_ns"][marks["mark"] == INPUT_MARK])
    places = np.unique(np.searchsorted(track.starts_ns, got_ns))
    return places[(places > 0) & (places < len(track.starts_ns))]


def _by_input(places: Ints) -> tuple[int, int] | None:
    """(collectives, place of one that is a first) where there are as many for every batch."""
    counts = np.diff(places)
    if len(counts) < _REPEATS:
        return None
    usual = int(np.bincount(counts).argmax())
    if np.count_nonzero(counts == usual) < _MIN_REGULAR * len(counts):
        return None
    return usual, int(places[int(np.flatnonzero(counts == usual)[-1])])


def _by_pauses(track: _Track, marks: Rows) -> tuple[int, int] | None:
    """The same, where a pause that stands out comes before every so many collectives."""
    collected = covered(marks[marks["mark"] == GC_MARK], 0)
    free, starts = track.free_ns[:-1], track.starts_ns[1:]
    pauses = np.maximum(starts - free - collected.between(free, np.maximum(starts, free)), 0.0)
    if len(pauses) < _MIN_PAUSES:
        return None
    for length in range(2, min(_LONGEST_BURST, len(pauses) // _BURSTS) + 1):
        rounds = len(pauses) // length
        table = pauses[-rounds * length :].reshape(rounds, length)
        folded = np.median(table, axis=0)
        place = int(np.argmax(folded))
        second = float(np.partition(folded, -2)[-2])
        # In almost every round, and not small beside the longest of most rounds: or a step would
        # be taken for two.
        low = float(np.percentile(table[:, place], _LOW_PERCENTILE))
        longest = float(np.percentile(table.max(axis=1), _HIGH_PERCENTILE))
        if low >= _STANDS_OUT * max(second, 0.2 * longest, _TICK_NS):
            return length, 1 + len(pauses) - rounds * length + place
    return None


def _primitive(codes: Codes, period: int) -> int:
    root = codes[-period:]
    for part in range(1, period // 2 + 1):
        if period % part == 0 and (root.reshape(-1, part) == root[:part]).all():
            return part
    return period


def _least_rotation(codes: Codes) -> tuple[int, ...]:
    """The rotation that comes first in order: it depends on the content alone."""
    ring = [int(code) for code in codes]
    count = len(ring)
    best, other, same = 0, 1, 0
    while best < count and other < count and same < count:
        left, right = ring[(best + same) % count], ring[(other + same) % count]
        if left == right:
            same += 1
            continue
        if left > right:
            best = max(best + same + 1, other)
            other = best + 1
        else:
            other += same + 1
        same = 0
    begin = best % count
    return tuple(ring[begin:] + ring[:begin])


def find_period(coded: Ints) -> tuple[int, float]:
    """(period, share of the sequence that repeats after it); period 0 where there is none.

    Args:
        coded: what is communicated, one number for each kind.
    """
    count = len(coded)
    longest = min(_MAX_PERIOD, count // _MIN_REPEATS)
    if longest < 1:
        return 0, 0.0
    shares = np.array(
        [np.count_nonzero(coded[p:] == coded[:-p]) / (count - p) for p in range(1, longest + 1)]
    )
    best = float(shares.max())
    if best < MIN_MATCH:
        return 0, best
    # One collective in between puts a whole period and itself out of place.
    periods = np.arange(1, longest + 1)
    as_good = shares >= best - (periods + 1) / (_RARE * periods)
    period = int(np.argmax(as_good)) + 1
    return period, float(shares[period - 1])
