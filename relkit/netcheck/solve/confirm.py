"""The next confirming round: suspects meet nodes of proven health, doubtful links meet again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relkit.netcheck.model import Edge
from relkit.netcheck.solve.analyse import WEAK, Analysis
from relkit.netcheck.solve.components import GROUP, LINK, NODE, Entity

LINK_TRIES = 7
MEMBERS_A_ROUND = 4


def open_questions(found: Analysis, least: float = WEAK) -> list[Entity]:
    """Entities that another measurement could settle, the most pressing first.

    These are charges with a rival explanation and the rivals themselves, charges that rest on
    too little (one partner for a node, one round for a link), weak suspicions, and nodes that were
    seen with bad partners only.

    Args:
        least: nats from which on a suspicion is asked about.
    """
    asked: dict[Entity, None] = {}
    for charge in found.charges:
        thin = charge.rounds < 2 or (charge.entity.kind == NODE and charge.partners < 2)
        if charge.rivals or thin:
            asked[charge.entity] = None
        for rival in charge.rivals:
            asked[rival] = None
    for entity, nats in found.weak:
        if nats > least:
            asked[entity] = None
    for node in found.unproven:
        asked[Entity(NODE, node)] = None
    order = {NODE: 0, GROUP: 1, LINK: 2}
    return sorted(asked, key=lambda entity: order[entity.kind])


def confirming_pairs(
    found: Analysis, edges: Sequence[Edge], order: Sequence[int], least: float = WEAK
) -> list[tuple[int, int]]:
    """Disjoint pairs of node numbers for the next round; none when nothing is left to ask.

    Args:
        edges: all measured so far. order: node numbers in the order of preference as partners.
        least: see open_questions.
    """
    questions = open_questions(found, least)
    if not questions:
        return []
    plan = _Plan(found, times_met(edges), order)
    for entity in questions:
        if entity.kind == NODE:
            plan.meet_healthy(entity.first)
        elif entity.kind == GROUP:
            plan.cross_from(entity.first)
        else:
            plan.meet_again(entity.first, entity.second)
    return plan.pairs


def times_met(edges: Sequence[Edge]) -> Counter[tuple[str, str]]:
    """In how many rounds each pair, lower name first, was measured."""
    rounds = {
        (edge.source, edge.target, edge.round)
        if edge.source < edge.target
        else (edge.target, edge.source, edge.round)
        for edge in edges
    }
    return Counter((low, high) for low, high, _ in rounds)


class _Plan:
    """Pairs that are being put together for one round."""

    def __init__(
        self, found: Analysis, met: Counter[tuple[str, str]], order: Sequence[int]
    ) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._found = found
        self._met = met
        self._group = found.seen.group.tolist()
        self._busy: set[int] = set()
        self._suspect_groups = {
            charge.entity.first for charge in found.charges if charge.entity.kind == GROUP
        } | {entity.first for entity, _ in found.weak if entity.kind == GROUP}
        self._pool = [node for node in order if found.healthy[node]]
        self._all = list(order)

    def meet_healthy(self, node: int) -> None:
        """Pair a suspect with a healthy node that it has not met, in its own group if possible."""
        if node in self._busy:
            return
        ours = self._group[node]
        for pool, same_group in ((self._pool, True), (self._pool, False)):
            for other in pool:
                theirs = self._group[other]
                if same_group and theirs != ours:
                    continue
                if ours != theirs and self._suspect_groups & {ours, theirs}:
                    continue
                if self._take(node, other, most=0):
                    return
        # Nobody proven is left that it has not met: anyone it has met least, suspects last.
        for most in range(LINK_TRIES):
            if any(self._take(node, other, most=most) for other in self._pool):
                return
            if most == 0 and any(self._take(node, other, most=0) for other in self._all):
                return

    def cross_from(self, group: int) -> None:
        """Pair a few healthy members with healthy nodes behind other uplinks."""
        members = [node for node in self._pool if self._group[node] == group]
        others = [
            node
            for node in self._pool
            if self._group[node] not in (-1, group)
            and self._group[node] not in self._suspect_groups
        ]
        for member in members[:MEMBERS_A_ROUND]:
            if member not in self._busy:
                any(self._take(member, other, most=0) for other in others)

    def meet_again(self, low: int, high: int) -> None:
        """Measure a doubtful link once more, a few times at most."""
        self._take(low, high, most=LINK_TRIES - 1)

    def _take(self, one: int, other: int, *, most: int) -> bool:
        if one == other or one in self._busy or other in self._busy:
            return False
        low, high = sorted((self._found.seen.nodes[one], self._found.seen.nodes[other]))
        if self._met[low, high] > most:
            return False
        self._busy |= {one, other}
        self.pairs.append((one, other))
        return True
