"""Which switches have an uplink that is too narrow for many pairs at once: group testing, pure.

One test loads the uplinks of two switches with all of their nodes at once. It is slow if one of
the two uplinks is too narrow, and a test at full speed clears both. Traffic in each direction is a
test of its own: what the first switch sends, and the second receives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_high

import numpy as np

from relkit.netcheck.model import Edge, LoadVerdict, NarrowUplink
from relkit.netcheck.solve.robust import healthy_level, noise_level

OUT, IN = "out", "in"
# A single slow test may be somebody else's traffic.
_MIN_SLOW_TESTS = 2
_NOISE_SIGMAS = 3.0
# Half of all switches may be narrow, and in all tests of two rounds.
_MIN_DESIGN_ROUNDS = 3


@dataclass(frozen=True, slots=True, order=True)
class Uplink:
    """One direction of the way between a switch and all others.

    Args:
        switch: its name.
        way: OUT for what its nodes send to others, IN for what they receive.
    """

    switch: str
    way: str


@dataclass(frozen=True, slots=True)
class LoadTest:
    """Several pairs between two switches at once, in one direction.

    Args:
        round: in which it was made.
        uplinks: those it has loaded.
        is_slow: the pairs were slower than one of them alone, or than other switches' pairs.
        share: of the speed of one pair alone that the pairs reached, the median.
        pairs: how many there were.
    """

    round: int
    uplinks: frozenset[Uplink]
    is_slow: bool
    share: float = 1.0
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """What tests say of uplinks; one that is in none of these was never tested.

    Args:
        cleared: at full speed under load once, and not slow under a larger one: nothing makes an
            uplink faster than it is.
        narrow: slow with partners that are cleared, in two rounds at least.
        doubtful: seen in slow tests only, with too little to say whose fault that was.
    """

    cleared: frozenset[Uplink]
    narrow: frozenset[Uplink]
    doubtful: frozenset[Uplink]


def decode(tests: Iterable[LoadTest]) -> Decoded:
    """Explain tests by narrow uplinks; whoever another explanation leaves free is not named."""
    known = tuple(tests)
    carries = _pairs_carried(known)
    rounds: set[tuple[Uplink, int]] = set()
    seen: set[Uplink] = set()
    for test in known:
        left = suspects(test, carries) if test.is_slow else frozenset()
        seen |= left
        if len(left) == 1:
            rounds.add((next(iter(left)), test.round))
    cleared = frozenset(carries) - seen
    times = Counter(uplink for uplink, _ in rounds)
    narrow = frozenset(up for up, count in times.items() if count >= _MIN_SLOW_TESTS)
    return Decoded(cleared, narrow, frozenset(seen) - narrow)


def _pairs_carried(tests: Iterable[LoadTest]) -> Mapping[Uplink, int]:
    """The most pairs that each uplink has carried at full speed."""
    carries: dict[Uplink, int] = {}
    for test in tests:
        for uplink in test.uplinks if not test.is_slow else ():
            carries[uplink] = max(carries.get(uplink, 0), test.pairs)
    return carries


def suspects(test: LoadTest, carries: Mapping[Uplink, int]) -> frozenset[Uplink]:
    """The uplinks of a slow test that have never carried as many pairs."""
    return frozenset(up for up in test.uplinks if carries.get(up, -1) < test.pairs)


def normal_gbps(edges: Iterable[Edge], groups: Mapping[str, str]) -> float:
    """What a pair behind one switch reaches, Gbit/s; 0 if no such pair was measured."""
    inside = [
        edge.bandwidth_gbps
        for edge in edges
        if edge.bandwidth_gbps > 0 and not edge.failure and _between(edge, groups) is None
    ]
    return float(healthy_level(np.array(inside))) if inside else 0.0


def least_share(edges: Iterable[Edge], groups: Mapping[str, str], slow_fraction: float) -> float:
    """The share of one pair's speed below which pairs under load count as slow.

    Args:
        edges: ordinary measurements; the scatter of those inside switches is that of the fleet.
        groups: node -> switch.
        slow_fraction: see Thresholds. Twice that has to be missing: many pairs begin and end at
            slightly different times.
    """
    known = list(edges)
    normal = normal_gbps(known, groups)
    ratios = [
        edge.bandwidth_gbps / normal
        for edge in known
        if normal and not edge.failure and _between(edge, groups) is None
    ]
    noise = noise_level(np.array(ratios)) if ratios else 0.0
    return 1.0 - min(0.6, max(2.0 * slow_fraction, _NOISE_SIGMAS * noise))


def load_tests(
    edges: Iterable[Edge], groups: Mapping[str, str], normal: float, floor: float
) -> tuple[LoadTest, ...]:
    """The measurements under load as tests.

    Where all of them are slow the network between the switches is narrower by design: they are
    then held against each other.

    Args:
        edges: measured under load; failures say nothing of a width.
        groups: node -> switch.
        normal: of normal_gbps; floor: of least_share.
    """
    flows: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for edge in edges:
        between = _between(edge, groups)
        if between and not edge.failure and normal > 0:
            flows[(edge.round, *between)].append(edge.bandwidth_gbps)
    several = {key: rates for key, rates in flows.items() if len(rates) > 1}
    shares = {key: median_high(rates) / normal for key, rates in several.items()}
    slow = {key for key, share in shares.items() if share < floor}
    if len(slow) == len(several) and _are_independent(slow):
        level = float(healthy_level(np.array([sum(several[key]) for key in slow])))
        slow = {key for key in slow if sum(several[key]) < floor * level}
    return tuple(
        LoadTest(
            number,
            frozenset((Uplink(source, OUT), Uplink(target, IN))),
            (number, source, target) in slow,
            share,
            len(several[number, source, target]),
        )
        for (number, source, target), share in sorted(shares.items())
    )


def _are_independent(slow: Iterable[tuple[int, str, str]]) -> bool:
    """They were made with different partners, and no single switch is in all of them."""
    tests = list(slow)
    pairs = {frozenset(switches) for _, *switches in tests}
    is_repeated = len({number for number, *_ in tests}) >= _MIN_DESIGN_ROUNDS
    return is_repeated and len(pairs) > 1 and not frozenset.intersection(*pairs)


def load_verdict(
    edges: Sequence[Edge], under_load: Sequence[Edge], groups: Mapping[str, str], slow: float
) -> LoadVerdict | None:
    """What the measurements under load say; None where there are none.

    Args:
        edges: ordinary measurements; under_load: those with all pairs of two switches at once, and
            then with one of them alone.
        groups: node -> switch.
        slow: slow_fraction of Thresholds.
    """
    normal, floor = normal_gbps(edges, groups), least_share(edges, groups, slow)
    tests = load_tests(under_load, groups, normal, floor)
    if not tests:
        return None
    decoded = decode(tests)
    alone = _alone(under_load, groups, normal)
    return LoadVerdict(
        narrow=tuple(
            _described(uplink, tests, _pairs_carried(tests), groups, alone, floor)
            for uplink in sorted(decoded.narrow)
        ),
        doubtful=tuple(sorted({uplink.switch for uplink in decoded.doubtful})),
        tested=len({uplink.switch for test in tests for uplink in test.uplinks}),
        switches=len(set(groups.values())),
        rounds=len({edge.round for edge in under_load}),
        share=round(median(test.share for test in tests), 4),
    )


def clear_of(
    edges: Iterable[Edge], load: LoadVerdict | None, groups: Mapping[str, str]
) -> list[Edge]:
    """The edges without those through an uplink that is narrow: they say nothing of nodes."""
    if load is None:
        return list(edges)
    out = {item.switch for item in load.narrow if item.way == OUT}
    into = {item.switch for item in load.narrow if item.way == IN}
    kept = []
    for edge in edges:
        between = _between(edge, groups)
        if between is None or (between[0] not in out and between[1] not in into):
            kept.append(edge)
    return kept


def _between(edge: Edge, groups: Mapping[str, str]) -> tuple[str, str] | None:
    """The two switches that an edge joins; None inside one, and where one is not known."""
    source, target = groups.get(edge.source), groups.get(edge.target)
    return (source, target) if source and target and source != target else None


def _alone(
    edges: Iterable[Edge], groups: Mapping[str, str], normal: float
) -> Mapping[Uplink, float]:
    """The share that one pair alone has reached through each uplink, at best."""
    flows: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for edge in edges:
        if (between := _between(edge, groups)) and not edge.failure:
            flows[(edge.round, *between)].append(edge.bandwidth_gbps)
    best: dict[Uplink, float] = {}
    for (_, source, target), rates in flows.items():
        if len(rates) == 1:
            for uplink in (Uplink(source, OUT), Uplink(target, IN)):
                best[uplink] = max(best.get(uplink, 0.0), rates[0] / normal)
    return best


def _described(
    uplink: Uplink,
    tests: Sequence[LoadTest],
    carries: Mapping[Uplink, int],
    groups: Mapping[str, str],
    alone: Mapping[Uplink, float],
    floor: float,
) -> NarrowUplink:
    own = [test for test in tests if test.is_slow and suspects(test, carries) == {uplink}]
    speed = alone.get(uplink)
    return NarrowUplink(
        switch=uplink.switch,
        way=uplink.way,
        nodes=tuple(sorted(node for node, switch in groups.items() if switch == uplink.switch)),
        pairs=max(test.pairs for test in own),
        share=round(median(test.share for test in own), 4),
        alone_share=None if speed is None else round(speed, 4),
        is_only_together=speed is not None and speed >= floor,
        rounds=len({test.round for test in own}),
    )
