"""Whose links are measured: those of the suspects' nodes and of the nodes that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from relkit.hang.links.model import MAX_NODES, Suspects
from relkit.hang.model import HangVerdict
from relkit.hang.waits import Wait
from relkit.ranks import RankSet

# With more suspects than this, some of those that wait for them are measured all the same.
_MAX_FIRST = MAX_NODES // 2


def suspects_of(
    verdict: HangVerdict, waits: Sequence[Wait], node_of: Mapping[int, int]
) -> Suspects:
    """The nodes to measure, at most MAX_NODES.

    Where no rank is at fault, all that wait for each other are looked at: it may be the network.

    Args:
        verdict: who is at fault; waits: all waits of the job.
        node_of: the node of each rank, as far as it is known.
    """
    culprits = RankSet.of(culprit.rank for culprit in verdict.culprits)
    blamed = [wait for wait in waits if not culprits or wait.missing & culprits]
    intervals = [each for wait in blamed for each in wait.waiters.intervals]
    waiting = RankSet.from_intervals(intervals) - culprits
    first = _nodes((culprit.rank for culprit in verdict.culprits), node_of)
    peers = sorted(_nodes(waiting, node_of))
    order = list(dict.fromkeys([*first[:_MAX_FIRST], *peers, *first[_MAX_FIRST:]]))
    concerned = culprits | waiting
    ranks: dict[int, list[int]] = {node: [] for node in order[:MAX_NODES]}
    for rank in concerned:
        if (node := node_of.get(rank, -1)) in ranks:
            ranks[node].append(rank)
    return Suspects(
        {node: RankSet.of(numbers) for node, numbers in ranks.items()},
        tuple(sorted(order[MAX_NODES:])),
    )


def _nodes(ranks: Iterable[int], node_of: Mapping[int, int]) -> list[int]:
    """The nodes of these ranks, each once, in the order of the ranks."""
    return list(dict.fromkeys(node_of[rank] for rank in ranks if rank in node_of))
