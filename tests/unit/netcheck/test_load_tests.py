"""Uplinks loaded on purpose: who is named, who is not, and in how many rounds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from relkit.netcheck.measure.load_rounds import LoadRounds, most_load_rounds
from relkit.netcheck.solve.load_tests import IN, OUT, LoadTest, Uplink, decode


@dataclass
class Network:
    """Switches of which some have a narrow uplink, and the tests made of them.

    Args:
        disturbed: (round, number of the test in it) that somebody else's traffic slows.
    """

    switches: tuple[str, ...]
    narrow: frozenset[Uplink]
    disturbed: frozenset[tuple[int, int]] = frozenset()
    tests: list[LoadTest] = field(default_factory=list)

    def ask_all(self) -> LoadRounds:
        rounds = LoadRounds(dict.fromkeys(self.switches, 4))
        while pairs := rounds.next_round(self.tests):
            names = [name for pair in pairs for name in pair]
            assert len(names) == len(set(names))
            ways = [way for one, two in pairs for way in ((one, two), (two, one))]
            for number, (source, target) in enumerate(ways):
                loaded = frozenset((Uplink(source, OUT), Uplink(target, IN)))
                is_slow = bool(loaded & self.narrow)
                is_slow |= (rounds.played - 1, number) in self.disturbed
                self.tests.append(LoadTest(rounds.played - 1, loaded, is_slow))
        return rounds


def names(count: int) -> tuple[str, ...]:
    return tuple(f"asw-{at}" for at in range(count))


def some_uplinks(count: int, faulty: int, seed: int) -> frozenset[Uplink]:
    """Of this many switches, in one direction or both."""
    chance = random.Random(seed)  # noqa: S311  (faults, not secrets)
    chosen = chance.sample(names(count), faulty)
    return frozenset(
        Uplink(name, way) for name in chosen for way in chance.choice([(OUT,), (IN,), (OUT, IN)])
    )


@given(st.integers(3, 64), st.data())
def test_all_narrow_uplinks_are_named_and_no_other_within_the_bound(
    count: int, data: st.DataObject
) -> None:
    faulty = data.draw(st.integers(0, max(1, count // 3)))
    truth = some_uplinks(count, faulty, data.draw(st.integers(0, 10**6)))
    network = Network(names(count), truth)
    rounds = network.ask_all()
    decoded = decode(network.tests)
    assert decoded.narrow == truth
    assert not decoded.doubtful
    alone = len(rounds.alone(decoded)) > 0
    assert alone == bool(truth)
    assert rounds.played + alone <= most_load_rounds(count, faulty)
    if not truth:
        assert rounds.played <= 2


@given(st.integers(2, 40), st.data())
def test_however_many_are_narrow_nobody_is_named_who_is_wide(
    count: int, data: st.DataObject
) -> None:
    faulty = data.draw(st.integers(0, count))
    truth = some_uplinks(count, faulty, data.draw(st.integers(0, 10**6)))
    network = Network(names(count), truth)
    rounds = network.ask_all()
    assert decode(network.tests).narrow <= truth
    assert rounds.played < most_load_rounds(count, faulty) or count < 2


@given(st.integers(3, 40), st.data())
def test_one_test_that_others_have_disturbed_names_nobody(count: int, data: st.DataObject) -> None:
    at = data.draw(st.tuples(st.integers(0, 3), st.integers(0, count - 1)))
    network = Network(names(count), frozenset(), frozenset((at,)))
    network.ask_all()
    assert not decode(network.tests).narrow


def test_of_two_switches_neither_is_named() -> None:
    network = Network(names(2), frozenset((Uplink("asw-0", OUT),)))
    network.ask_all()
    decoded = decode(network.tests)
    assert not decoded.narrow
    assert decoded.doubtful == {Uplink("asw-0", OUT), Uplink("asw-1", IN)}
