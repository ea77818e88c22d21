"""Which pairs of nodes are measured in which round: quick, full, and by switch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from relkit.netcheck.measure.round_robin import circle_round, rounds_needed
from relkit.netcheck.model import Edge, Thresholds
from relkit.netcheck.solve.analyse import FAINT, analyse
from relkit.netcheck.solve.confirm import Doubt, confirming_pairs

Pairs = tuple[tuple[str, str], ...]
SCREENING_ROUNDS = 2
SMALL_FLEET = 4
# Where transient slowdowns are frequent, a link is diagnosed only after several slow rounds.
FULL_CONFIRMS = 6
# In a fleet of three or four, two transient slowdowns make a healthy node look slow, and hide one
# that is: there are too few measurements to tell from them how often that happens.
SMALL_CONFIRMS = 9
_SMALL_DOUBT = Doubt(FAINT, node_rounds=5, link_rounds=3)
MIN_GROUP_ROUNDS = 8


class Schedule(Protocol):
    """Chooses the next pairs, given what has been measured so far."""

    max_rounds: int
    under_load: bool
    """The pairs of the round that was chosen last load uplinks together, see Edge.under_load."""

    def next_round(self, edges: Sequence[Edge]) -> Pairs:
        """Disjoint pairs, all to be measured at once; none if nothing is left to do.

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
        names: all nodes.
        fixed: rounds that are always run, as pairs of node numbers.
        spare: further rounds, for a fleet so slow that no node is known to be healthy yet.
        max_rounds: bound on all rounds together.
        order: node numbers in order of preference as healthy partners.
        doubt: see confirm.Doubt.
    """

    def __init__(
        self,
        names: Sequence[str],
        fixed: Sequence[list[tuple[int, int]]],
        spare: Iterator[list[tuple[int, int]]],
        max_rounds: int,
        order: Sequence[int],
        groups: Mapping[str, str],
        thresholds: Thresholds,
        doubt: Doubt = Doubt(),  # noqa: B008 (frozen)
    ) -> None:
        if len(set(names)) != len(names):
            raise ValueError("a node is named twice")
        self.max_rounds = max_rounds
        self.under_load = False
        self._names = tuple(names)
        self._fixed = fixed
        self._spare = spare
        self._order = tuple(order)
        self._groups = dict(groups)
        self._thresholds = thresholds
        self._doubt = doubt
        self._played = 0

    def next_round(self, edges: Sequence[Edge]) -> Pairs:
        """See Schedule."""
        if self._played < len(self._fixed):
            pairs = self._fixed[self._played]
        elif self._played < self.max_rounds and edges:
            analysis = analyse(edges, self._names, self._thresholds, self._groups)
            if analysis.common:
                pairs = next(self._spare, [])
            else:
                pairs = confirming_pairs(analysis, edges, self._order, self._doubt)
        else:
            pairs = []
        self._played += 1
        return tuple((self._names[first], self._names[second]) for first, second in pairs)


def quick(nodes: Sequence[str], seed: int = 0, *, thresholds: Thresholds | None = None) -> Schedule:
    """Two screening rounds, then confirming rounds: at most 2 + ceil(log2 n) in all.

    Fleets of up to four nodes are measured as by `full`.

    Args:
        nodes: names, each once.
        seed: of the random order; the same seed gives the same rounds.
        thresholds: what counts as suspect between rounds; None: the defaults.

    Raises:
        ValueError: a node is named twice.
    """
    count = len(nodes)
    order = list(range(count))
    random.Random(seed).shuffle(order)  # noqa: S311  (pairs, not secrets)
    bounds = thresholds or Thresholds()
    if _is_small(count):
        return _small(nodes, order, bounds)
    rounds = rounds_needed(count)
    screening = min(SCREENING_ROUNDS, rounds)
    fixed = [_renumbered(circle_round(count, at), order) for at in range(screening)]
    spare = (_renumbered(circle_round(count, at), order) for at in range(screening, rounds))
    return _Rounds(nodes, fixed, spare, most_quick_rounds(count), order, {}, bounds)


def most_quick_rounds(count: int) -> int:
    """The bound on the rounds of `quick`, for this many nodes."""
    if _is_small(count):
        return rounds_needed(count) + SMALL_CONFIRMS
    return SCREENING_ROUNDS + doublings(count) if count > 1 else 0


def full(
    nodes: Sequence[str],
    *,
    thresholds: Thresholds | None = None,
    confirm_rounds: int | None = None,
) -> Schedule:
    """Every pair exactly once in n - 1 rounds (n for odd n), then confirming rounds.

    Args:
        nodes: names, each once.
        thresholds: as for `quick`.
        confirm_rounds: bound on the confirming rounds; None: ceil(log2 n), but at least 6, and
            9 for three or four nodes.

    Raises:
        ValueError: a node is named twice.
    """
    count = len(nodes)
    if confirm_rounds is None and _is_small(count):
        return _small(nodes, range(count), thresholds or Thresholds())
    fixed = [circle_round(count, at) for at in range(rounds_needed(count))]
    extra = max(FULL_CONFIRMS, doublings(count)) if confirm_rounds is None else confirm_rounds
    limit = len(fixed) + extra if fixed else 0
    bounds = thresholds or Thresholds()
    return _Rounds(nodes, fixed, iter(()), limit, range(count), {}, bounds, Doubt(FAINT))


def groups(
    nodes: Sequence[str],
    topology: Mapping[str, str],
    *,
    thresholds: Thresholds | None = None,
) -> Schedule:
    """Two rounds inside every switch, two between switches, then confirming rounds.

    The limit for all rounds together is 2 + ceil(log2 n), but at least eight.

    Args:
        nodes: names, each once.
        topology: node -> switch; nodes that are not in it form a group of their own, whose
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
    limit = max(MIN_GROUP_ROUNDS, SCREENING_ROUNDS + doublings(len(nodes))) if fixed else 0
    spare = (crossing_pairs(members, at) for at in range(2, limit))
    known = {name: topology[name] for name in nodes if name in topology}
    return _Rounds(nodes, fixed, spare, limit, range(len(nodes)), known, thresholds or Thresholds())


def _is_small(count: int) -> bool:
    # With two nodes, no number of rounds tells which of them is at fault.
    return 2 < count <= SMALL_FLEET


def _small(nodes: Sequence[str], order: Sequence[int], thresholds: Thresholds) -> Schedule:
    """Every pair once, and again where it is in doubt."""
    count = len(nodes)
    fixed = [_renumbered(circle_round(count, at), order) for at in range(rounds_needed(count))]
    most = len(fixed) + SMALL_CONFIRMS
    return _Rounds(nodes, fixed, iter(()), most, order, {}, thresholds, _SMALL_DOUBT)


def _renumbered(pairs: list[tuple[int, int]], order: Sequence[int]) -> list[tuple[int, int]]:
    return [(order[first], order[second]) for first, second in pairs]


def inside_pairs(members: Sequence[Sequence[int]], number: int) -> list[tuple[int, int]]:
    """One round robin round in every group at once.

    Args:
        members: node numbers of each group.
        number: of the round; a group whose pairs have all met starts again.
    """
    return [
        (group[first], group[second])
        for group in members
        for first, second in circle_round(len(group), number)
    ]


def crossing_pairs(members: Sequence[Sequence[int]], number: int) -> list[tuple[int, int]]:
    """Disjoint pairs of nodes in different groups, spread over as many pairs of groups as can be.

    The first members of all groups play one round of a round robin between groups, the second
    members another one, and so on. Each group thus meets many others in one round, and one bad
    uplink cannot hide behind another. Which member comes first changes with the round.
    """
    pairs: list[tuple[int, int]] = []
    left: list[list[int]] = [[] for _ in members]
    for place in range(max((len(group) for group in members), default=0)):
        present = [at for at, group in enumerate(members) if place < len(group)]
        node = {at: members[at][(place + number * (at + 1)) % len(members[at])] for at in present}
        met = set()
        for first, second in circle_round(len(present), place + number * (place + 1)):
            pairs.append((node[present[first]], node[present[second]]))
            met |= {present[first], present[second]}
        for at in present:
            if at not in met:
                left[at].append(node[at])
    return pairs + _pair_rest(left)


def _pair_rest(left: list[list[int]]) -> list[tuple[int, int]]:
    """Pair the nodes that are left over, always from the two groups with most of them."""
    pairs: list[tuple[int, int]] = []
    while True:
        fullest = sorted(range(len(left)), key=lambda at: (-len(left[at]), at))[:2]
        if len(fullest) < 2 or not left[fullest[1]]:
            return pairs
        pairs.append((left[fullest[0]].pop(0), left[fullest[1]].pop(0)))
