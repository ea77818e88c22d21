"""Which ranks do equal work, as their steps tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relkit.straggler.step_record import StepRecord


class PeerGroups:
    """Ranks of one group are compared with each other.

    What a step communicates may change (an evaluation, another number of micro-batches) while the
    ranks stay divided as before: then nothing changes here, and evidence is kept.

    Args:
        world_size: ranks; one that was not seen yet is a group of its own.
    """

    def __init__(self, world_size: int) -> None:
        self.by_rank: tuple[int, ...] = tuple(range(world_size))
        self._keys: list[tuple[int, str]] = []

    def update(self, records: Sequence[StepRecord]) -> bool:
        """Whether other ranks are to be compared from this step on.

        Args:
            records: of one step, one a rank at most.
        """
        keys = [(record.rank, record.peers_key) for record in records]
        if keys == self._keys:
            return False
        before = dict(self._keys)
        self._keys = keys
        pairs = {(self.by_rank[rank], key) for rank, key in keys}
        olds, news = {old for old, _ in pairs}, {key for _, key in pairs}
        if len(pairs) == len(olds) == len(news):
            # Who has no peers is held against its own past, of which less than this is left then.
            many = Counter(self.by_rank)
            alone = [(rank, key) for rank, key in keys if many[self.by_rank[rank]] == 1]
            if all(before.get(rank, key) == key for rank, key in alone):
                return False
        number: dict[str, int] = {}
        group_of = dict(enumerate(self.by_rank))
        free = max(self.by_rank) + 1
        for rank, key in keys:
            group_of[rank] = free + number.setdefault(key, len(number))
        # Small numbers again, in the order of ranks.
        order: dict[int, int] = {}
        self.by_rank = tuple(order.setdefault(group, len(order)) for group in group_of.values())
        return True
