"""Pairs inside each switch, and pairs between switches that load every uplink alike."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.netcheck.measure.round_robin import circle_round


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
