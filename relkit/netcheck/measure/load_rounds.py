"""Which switches load their uplinks together in the next round, until each narrow one is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.netcheck.measure.round_robin import circle_round, rounds_needed
from relkit.netcheck.solve.load_tests import IN, OUT, Decoded, LoadTest, Uplink, decode

Matched = tuple[str, str]


def most_load_rounds(switches: int, faults: int) -> int:
    """The bound on all rounds under load: 2 + d log2 N, for d narrow uplinks of N (at least 1).

    The last of them measures single pairs alone, to compare with.
    """
    if switches < 2:
        return 0
    return 2 + max(1, faults) * (switches - 1).bit_length()


class LoadRounds:
    """Chooses pairs of switches, given all tests so far: an adaptive group test.

    The first round loads all uplinks at once. Whoever was slow in it meets switches whose uplinks
    are known to be wide, which settles at least as many as there are of these in each round.

    Args:
        sizes: of the switches that can be loaded: name -> how many nodes it has for it.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self._switches = tuple(sorted(sizes))
        self._met: set[frozenset[str]] = set()
        self._turn = 0
        self.played = 0

    def next_round(self, tests: Sequence[LoadTest]) -> list[Matched]:
        """Disjoint pairs of switches to be loaded at once; none if there is nothing left to ask."""
        decoded = decode(tests)
        faults = len({uplink.switch for uplink in decoded.narrow})
        # One round is kept for single pairs.
        if self.played >= most_load_rounds(len(self._switches), faults) - 1:
            return []
        asked = [name for name in self._switches if self._is_open(name, decoded)]
        pairs = self._with_cleared(asked, decoded) if asked else []
        if asked and not pairs:
            pairs = self._from_the_circle(set(asked))
        if pairs:
            self.played += 1
            self._met |= {frozenset(pair) for pair in pairs}
        return pairs

    def alone(self, decoded: Decoded) -> list[Matched]:
        """Each switch with a narrow uplink, and a partner whose uplinks are wide, once each."""
        pairs: list[Matched] = []
        busy: set[str] = set()
        for name in sorted({uplink.switch for uplink in decoded.narrow}):
            for other in self._switches:
                if other not in busy | {name} and _is_cleared(other, decoded):
                    pairs.append((name, other))
                    busy |= {name, other}
                    break
        return pairs

    def _is_open(self, name: str, decoded: Decoded) -> bool:
        settled = decoded.cleared | decoded.narrow
        return any(uplink not in settled for uplink in _both_ways(name))

    def _with_cleared(self, asked: Sequence[str], decoded: Decoded) -> list[Matched]:
        """Each open switch with one that is wide where the open one is not known to be."""
        pairs: list[Matched] = []
        busy: set[str] = set()
        for name in asked:
            fit = [
                other
                for other in self._switches
                if other not in busy | {name} and self._settles(name, other, decoded)
            ]
            fit.sort(key=lambda other: self._worth(name, other, other in asked))
            if name not in busy and fit:
                pairs.append((name, fit[0]))
                busy |= {name, fit[0]}
        return pairs

    def _worth(self, name: str, other: str, is_open: bool) -> tuple[int, bool, bool]:
        """The less, the better: fewer nodes than it has, met before, wanted by others."""
        missing = max(0, self._sizes[name] - self._sizes[other])
        return missing, frozenset((name, other)) in self._met, is_open

    def _settles(self, name: str, other: str, decoded: Decoded) -> bool:
        """The other's uplinks are known to be wide, opposite to those in question."""
        settled = decoded.cleared | decoded.narrow
        partners = [
            Uplink(other, IN if uplink.way == OUT else OUT)
            for uplink in _both_ways(name)
            if uplink not in settled
        ]
        return all(partner in decoded.cleared for partner in partners)

    def _from_the_circle(self, asked: set[str]) -> list[Matched]:
        """Nobody is known to be wide yet: the next round in which somebody meets somebody new."""
        count = len(self._switches)
        while self._turn < rounds_needed(count):
            turn = [
                (self._switches[first], self._switches[second])
                for first, second in circle_round(count, self._turn)
            ]
            self._turn += 1
            if any(asked & set(pair) and frozenset(pair) not in self._met for pair in turn):
                return turn
        return []


def node_pairs(
    matched: Sequence[Matched], members: Mapping[str, Sequence[str]], *, alone: bool = False
) -> list[tuple[str, str]]:
    """The pairs of nodes that load these switches: all of one with all of the other, or one.

    The first node of a pair connects, and sends first: all pairs of two switches send the same
    way at the same time.
    """
    pairs = []
    for first, second in matched:
        couples = list(zip(members[first], members[second], strict=False))
        pairs += couples[:1] if alone else couples
    return pairs


def _both_ways(switch: str) -> tuple[Uplink, Uplink]:
    return Uplink(switch, OUT), Uplink(switch, IN)


def _is_cleared(switch: str, decoded: Decoded) -> bool:
    return all(uplink in decoded.cleared for uplink in _both_ways(switch))
