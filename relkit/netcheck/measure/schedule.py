"""Which pairs of nodes are measured in which round: quick, full, and by switch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from relkit.netcheck.measure.cross_switch import crossing_pairs, inside_pairs
from relkit.netcheck.measure.round_robin import circle_round, rounds_needed
from relkit.netcheck.model import Edge, Thresholds
from relkit.netcheck.solve.analyse import FAINT, WEAK, analyse
from relkit.netcheck.solve.confirm import confirming_pairs

Pairs = tuple[tuple[str, str], ...]
SCREENING_ROUNDS = 2
SMALL_FLEET = 4
# Where hiccups are frequent, a single link needs several slow rounds to be convicted.
FULL_CONFIRMS = 6
LEAST_GROUP_ROUNDS = 8


class Schedule(Protocol):
    """Says whom to pair next, given what has been measured so far."""

    most_rounds: int

    def next_round(self, edges: Sequence[Edge]) -> Pairs:
        """Disjoint pairs, all to be measured at once; none when there is nothing left to do.

        Args:
            edges: everything measured in the rounds so far.
        """
        ...


def doublings(nodes: int) -> int:
    """ceil(log2 n), 0 for one node or none."""
    return max(0, nodes - 1).bit_length()


class _Rounds:
    """Fixed rounds first, then confirming rounds while something is in doubt.

    Args:
        names: all nodes. fixed: the rounds to play in any case, as pairs of node numbers.
        spare: further rounds, for when so much is slow that nobody is proven healthy yet.
        most_rounds: bound on all rounds together.
        order: node numbers in order of preference as healthy partners.
        least: nats from which on a suspicion is asked about.
    """

    def __init__(
        self,
        names: Sequence[str],
        fixed: Sequence[list[tuple[int, int]]],
        spare: Iterator[list[tuple[int, int]]],
        most_rounds: int,
        order: Sequence[int],
        groups: Mapping[str, str],
        thresholds: Thresholds,
        least: float = WEAK,
    ) -> None:
        if len(set(names)) != len(names):
            raise ValueError("a node is named twice")
        self.most_rounds = most_rounds
        self._names = tuple(names)
        self._fixed = fixed
        self._spare = spare
        self._order = tuple(order)
        self._groups = dict(groups)
        self._thresholds = thresholds
        self._least = least
        self._played = 0

    def next_round(self, edges: Sequence[Edge]) -> Pairs:
        """See Schedule."""
        if self._played < len(self._fixed):
            pairs = self._fixed[self._played]
        elif self._played < self.most_rounds and edges:
            found = analyse(edges, self._names, self._thresholds, self._groups)
            if found.common:
                pairs = next(self._spare, [])
            else:
                pairs = confirming_pairs(found, edges, self._order, self._least)
        else:
            pairs = []
        self._played += 1
        return tuple((self._names[one], self._names[other]) for one, other in pairs)


def quick(nodes: Sequence[str], seed: int = 0, *, thresholds: Thresholds | None = None) -> Schedule:
    """Two screening rounds, then confirming rounds; at most 2 + ceil(log2 n) in all.

    Fleets of up to four nodes are measured in full, which takes no more rounds than that.

    Args:
        nodes: names, each once.
        seed: decides who meets whom; the same seed gives the same rounds.
        thresholds: what counts as suspect between rounds; the defaults where None.

    Raises:
        ValueError: a node is named twice.
    """
    count = len(nodes)
    order = list(range(count))
    random.Random(seed).shuffle(order)  # noqa: S311  (pairs, not secrets)
    screening = rounds_needed(count)
    if count > SMALL_FLEET:
        screening = min(SCREENING_ROUNDS, screening)
    fixed = [_renumbered(circle_round(count, at), order) for at in range(screening)]
    spare = (
        _renumbered(circle_round(count, at), order) for at in range(screening, rounds_needed(count))
    )
    most = SCREENING_ROUNDS + doublings(count) if count > 1 else 0
    return _Rounds(nodes, fixed, spare, most, order, {}, thresholds or Thresholds())


def full(
    nodes: Sequence[str],
    *,
    thresholds: Thresholds | None = None,
    confirm_rounds: int | None = None,
) -> Schedule:
    """Every pair exactly once in n - 1 rounds (n for odd n), then what is in doubt once more.

    Args:
        nodes: names, each once.
        thresholds: as for `quick`.
        confirm_rounds: bound on the rounds after the tournament; where None, ceil(log2 n), and
            6 at least. 0 gives the bare tournament.

    Raises:
        ValueError: a node is named twice.
    """
    count = len(nodes)
    fixed = [circle_round(count, at) for at in range(rounds_needed(count))]
    extra = max(FULL_CONFIRMS, doublings(count)) if confirm_rounds is None else confirm_rounds
    most = len(fixed) + extra if fixed else 0
    bounds = thresholds or Thresholds()
    return _Rounds(nodes, fixed, iter(()), most, range(count), {}, bounds, least=FAINT)


def groups(
    nodes: Sequence[str],
    topology: Mapping[str, str],
    *,
    thresholds: Thresholds | None = None,
) -> Schedule:
    """Two rounds inside every switch, two across switches, then confirming rounds.

    At most 2 + ceil(log2 n) rounds in all, and never fewer allowed than eight.

    Args:
        nodes: names, each once.
        topology: node -> switch; nodes that it does not name form a group of their own, whose
            uplink is not judged.
        thresholds: as for `quick`.

    Raises:
        ValueError: a node is named twice.
    """
    by_switch: dict[str, list[int]] = {}
    for at, name in enumerate(nodes):
        by_switch.setdefault(topology.get(name, ""), []).append(at)
    members = [by_switch[name] for name in sorted(by_switch)]
    largest = max((len(group) for group in members), default=0)
    inner = min(2, rounds_needed(largest))
    fixed = [inside_pairs(members, at) for at in range(inner)]
    fixed += [pairs for at in range(2) if (pairs := crossing_pairs(members, at))]
    most = max(LEAST_GROUP_ROUNDS, SCREENING_ROUNDS + doublings(len(nodes))) if fixed else 0
    spare = (crossing_pairs(members, at) for at in range(2, most))
    known = {name: topology[name] for name in nodes if name in topology}
    return _Rounds(nodes, fixed, spare, most, range(len(nodes)), known, thresholds or Thresholds())


def _renumbered(pairs: list[tuple[int, int]], order: Sequence[int]) -> list[tuple[int, int]]:
    return [(order[one], order[other]) for one, other in pairs]
