"""Which ranks hold which shard of the optimizer state, so that no single loss takes a shard away.

A data-parallel group of d ranks cuts its flat buffers into d equal shards, as the plain
distributed optimizer does: rank i reduces shard i. Each shard is then also given to another rank:

- mirrored, where the group's size divides by the number of copies: ranks form sets of `copies`
  members that hold each other's shards. With two copies any f losses outside one pair are survived.
- chained, for other sizes: the shard of a rank is also on the next ones in a ring.

The reduction itself is the plain one, so the bits of gradients do not depend on replication.
Source: MindIO TTP's replica optimizer (even sizes); its form for odd sizes is not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class ReplicaMap:
    """Who holds the shards of one data-parallel (or expert-data-parallel) group.

    Args:
        name: of the group, e.g. "tp0 pp1" or "tp0 pp1 ep0".
        ranks: global ranks of the group in its own order; rank i of it reduces shard i.
        holders: for each shard the global ranks that hold it, its reducer first.
    """

    name: str
    ranks: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]

    def shards_of(self, rank: int) -> tuple[int, ...]:
        """The shards that a global rank holds, in ascending order."""
        return tuple(i for i, held_by in enumerate(self.holders) if rank in held_by)

    def unprotected(self, hosts: Mapping[int, str]) -> tuple[int, ...]:
        """The shards that the loss of one host takes away.

        Args:
            hosts: host name of each global rank; a rank that is missing is on a host of its own.
        """
        lost = []
        for shard, held_by in enumerate(self.holders):
            if len({hosts.get(rank, f"rank {rank}") for rank in held_by}) < 2:
                lost.append(shard)
        return tuple(lost)


def replica_map(
    name: str,
    ranks: Sequence[int],
    *,
    copies: int = 2,
    hosts: Mapping[int, str] | None = None,
) -> ReplicaMap:
    """Place every shard of a group on `copies` ranks, on different hosts where that can be.

    Args:
        name: of the group.
        ranks: global ranks in the group's order.
        copies: holders of each shard, its reducer included; 1 to len(ranks).
        hosts: host name of each global rank; None: they count as one host.

    Raises:
        UsageProblem: there cannot be as many copies.
    """
    size = len(ranks)
    if not 1 <= copies <= size:
        raise UsageProblem(
            f"group {name} has {size} data-parallel rank{'s' if size != 1 else ''}, which cannot"
            f" hold {copies} copies of its optimizer state",
            next_step="Raise the data-parallel size, or switch try-to-persist off (ENABLE_TTP=0).",
        )
    places = hosts or {}
    sets = (
        _mirrored(ranks, copies, places) if size % copies == 0 else _chained(ranks, copies, places)
    )
    return ReplicaMap(name, tuple(ranks), tuple(sets[rank] for rank in ranks))


def _mirrored(
    ranks: Sequence[int], copies: int, hosts: Mapping[int, str]
) -> dict[int, tuple[int, ...]]:
    sets = _across_hosts(ranks, copies, hosts)
    holders: dict[int, tuple[int, ...]] = {}
    for members in sets:
        for rank in members:
            holders[rank] = (rank, *(other for other in members if other != rank))
    return holders


def _across_hosts(
    ranks: Sequence[int], copies: int, hosts: Mapping[int, str]
) -> list[tuple[int, ...]]:
    """Cut the ranks into sets of `copies`, each over as many hosts as can be."""
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        by_host.setdefault(hosts.get(rank, ""), []).append(rank)
    if len(by_host) == 1:
        # One host: far apart in the group, which is far apart in the machine.
        step = len(ranks) // copies
        return [tuple(ranks[first + k * step] for k in range(copies)) for first in range(step)]
    order = {host: place for place, host in enumerate(by_host)}
    sets: list[tuple[int, ...]] = []
    while any(by_host.values()):
        # From the fullest hosts first: what is left then always fits across hosts if anything can.
        fullest = sorted(by_host, key=lambda host: (-len(by_host[host]), order[host]))
        members: list[int] = []
        while len(members) < copies:
            for host in fullest:
                if by_host[host] and len(members) < copies:
                    members.append(by_host[host].pop(0))
        sets.append(tuple(sorted(members, key=ranks.index)))
    return sets


def _chained(
    ranks: Sequence[int], copies: int, hosts: Mapping[int, str]
) -> dict[int, tuple[int, ...]]:
    ring = _ring_over_hosts(ranks, hosts)
    size = len(ring)
    return {
        rank: tuple(ring[(place + k) % size] for k in range(copies))
        for place, rank in enumerate(ring)
    }


def _ring_over_hosts(ranks: Sequence[int], hosts: Mapping[int, str]) -> list[int]:
    """The ranks in an order in which neighbours are on different hosts, as far as that goes.

    The places 0, 2, 4 ... of the ring are filled first, then 1, 3, 5 ..., one host after the other
    with the fullest first: a host of at most half the ranks never sits beside itself.
    """
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        by_host.setdefault(hosts.get(rank, ""), []).append(rank)
    if len(by_host) == 1:
        return list(ranks)
    queue = [
        rank for host in sorted(by_host, key=lambda h: -len(by_host[h])) for rank in by_host[host]
    ]
    slots = [*range(0, len(ranks), 2), *range(1, len(ranks), 2)]
    ring = [0] * len(ranks)
    for slot, rank in zip(slots, queue, strict=True):
        ring[slot] = rank
    return ring


def bytes_per_parameter(data_parallel: int, copies: int, *, distributed: bool = True) -> float:
    """Memory of one fp32 parameter with its gradient and Adam's state, in bytes on one rank.

    Parameter and gradient take 4 bytes each and are on every rank; the two moments take 8 bytes
    and are cut: 16 without cutting, 8 + 8/d with the distributed optimizer, 8 + 8N/d with N copies.
    """
    if not distributed:
        return 16.0
    return 8.0 + 8.0 * copies / data_parallel
