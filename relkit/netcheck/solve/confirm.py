"""The next confirming round: suspects are paired with healthy nodes, doubtful links repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relkit.netcheck.model import Edge
from relkit.netcheck.solve.analyse import WEAK, Analysis, Candidate
from relkit.netcheck.solve.components import GROUP, LINK, NODE, Entity

LINK_TRIES = 7
MEMBERS_PER_ROUND = 4


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is measured again before it is diagnosed.

    Args:
        min_gain: weak suspicions below this gain in log-likelihood are left out.
        node_rounds, link_rounds: distinct rounds that a slow node, or a slow link, has to rest on.
            What is dead needs two: load slows a measurement, and does not silence one.
    """

    min_gain: float = WEAK
    node_rounds: int = 2
    link_rounds: int = 2


def open_questions(analysis: Analysis, doubt: Doubt) -> list[Entity]:
    """Entities that another measurement could settle, the most pressing first.

    These are candidates with an alternative explanation and the alternatives themselves,
    candidates that rest on too little (one partner for a node, few rounds), weak suspicions, and
    nodes that were measured with bad partners only.
    """
    asked: dict[Entity, None] = {}
    for candidate in analysis.candidates:
        if candidate.alternatives or _rests_on_little(candidate, doubt):
            asked[candidate.entity] = None
        for alternative in candidate.alternatives:
            asked[alternative] = None
    for entity, gain in analysis.weak:
        if gain > doubt.min_gain:
            asked[entity] = None
    for node in analysis.unproven:
        asked[Entity(NODE, node)] = None
    order = {NODE: 0, GROUP: 1, LINK: 2}
    return sorted(asked, key=lambda entity: order[entity.kind])


def _rests_on_little(candidate: Candidate, doubt: Doubt) -> bool:
    is_node = candidate.entity.kind == NODE
    rounds = 2
    if any(fault.capacity > 0.0 for fault in candidate.faults):
        rounds = doubt.node_rounds if is_node else doubt.link_rounds
    return candidate.rounds < rounds or (is_node and candidate.partners < 2)


def confirming_pairs(
    analysis: Analysis, edges: Sequence[Edge], order: Sequence[int], doubt: Doubt
) -> list[tuple[int, int]]:
    """Disjoint pairs of node numbers for the next round; none if nothing is open.

    Args:
        edges: all measured so far.
        order: node numbers in the order of preference as partners.
        doubt: see Doubt.
    """
    questions = open_questions(analysis, doubt)
    if not questions:
        return []
    plan = _Plan(analysis, times_met(edges), order)
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
    """The pairs of one round, chosen one by one."""

    def __init__(
        self, analysis: Analysis, met: Counter[tuple[str, str]], order: Sequence[int]
    ) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._names = analysis.seen.nodes
        self._met = met
        self._group = analysis.seen.group.tolist()
        self._busy: set[int] = set()
        self._suspect_groups = {
            candidate.entity.first
            for candidate in analysis.candidates
            if candidate.entity.kind == GROUP
        } | {entity.first for entity, _ in analysis.weak if entity.kind == GROUP}
        self._pool = [node for node in order if analysis.healthy[node]]
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
                if self._take(node, other, max_met=0):
                    return
        # It has met every healthy node: repeat the one that it has met least, suspects last.
        for max_met in range(LINK_TRIES):
            if any(self._take(node, other, max_met=max_met) for other in self._pool):
                return
            if max_met == 0 and any(self._take(node, other, max_met=0) for other in self._all):
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
        for member in members[:MEMBERS_PER_ROUND]:
            if member not in self._busy:
                any(self._take(member, other, max_met=0) for other in others)

    def meet_again(self, low: int, high: int) -> None:
        """Measure a doubtful link once more, LINK_TRIES times in all."""
        self._take(low, high, max_met=LINK_TRIES - 1)

    def _take(self, first: int, second: int, *, max_met: int) -> bool:
        if first == second or first in self._busy or second in self._busy:
            return False
        low, high = sorted((self._names[first], self._names[second]))
        if self._met[low, high] > max_met:
            return False
        self._busy |= {first, second}
        self.pairs.append((first, second))
        return True
