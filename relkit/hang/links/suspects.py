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


def with_unheard_nodes(node_of: Mapping[int, int], nodes: int, world_size: int) -> dict[int, int]:
    """The node of each rank, also of nodes that have sent nothing yet.

    torch numbers ranks node after node, so that the ranks between those of two nodes are those of
    the nodes between. Where these cannot have equally many, they stay unknown.

    Args:
        node_of: the node of each rank that is known; nodes: of the job.
        world_size: ranks of the job.
    """
    all_nodes = dict(node_of)
    first_rank, first_node = 0, 0
    for rank, node in [*sorted(node_of.items()), (world_size, nodes)]:
        missing, between = rank - first_rank, node - first_node
        if missing > 0 and between > 0 and missing % between == 0:
            each = missing // between
            all_nodes |= {first_rank + at: first_node + at // each for at in range(missing)}
        first_rank, first_node = rank + 1, node + 1
    return all_nodes


def _nodes(ranks: Iterable[int], node_of: Mapping[int, int]) -> list[int]:
    """The nodes of these ranks, each once, in the order of the ranks."""
    return list(dict.fromkeys(node_of[rank] for rank in ranks if rank in node_of))
