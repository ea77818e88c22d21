"""Medians of the edges by node, by message size and of the whole fleet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from relkit.netcheck.model import Edge, Link, SizeStatistics


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Medians over the edges of one node; None if nothing was measured.

    Args:
        out_gbps, in_gbps: median over its good edges, Gbit/s; both_ways_gbps: of one direction
            while the other ran too.
        latency_us: median of its round trips, us.
        tested, failed: number of directed edges, all and failed.
    """

    out_gbps: float | None = None
    in_gbps: float | None = None
    latency_us: float | None = None
    both_ways_gbps: float | None = None
    tested: int = 0
    failed: int = 0


def fleet_median(edges: Iterable[Edge]) -> float | None:
    """Median bandwidth of all good edges, Gbit/s."""
    return positive_median(edge.bandwidth_gbps for edge in edges if not edge.failure)


def positive_median(values: Iterable[float]) -> float | None:
    """Median of the values above 0; None if there are none."""
    positive = [value for value in values if value > 0]
    return median(positive) if positive else None


def by_node(nodes: Sequence[str], edges: Iterable[Edge]) -> dict[str, NodeStatistics]:
    """The statistics of every node."""
    sent, received, trips = defaultdict(list), defaultdict(list), defaultdict(list)
    both: defaultdict[str, list[float]] = defaultdict(list)
    tested: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for edge in edges:
        tested.update((edge.source, edge.target))
        if edge.failure:
            failed.update((edge.source, edge.target))
            continue
        sent[edge.source].append(edge.bandwidth_gbps)
        received[edge.target].append(edge.bandwidth_gbps)
        for node in (edge.source, edge.target):
            trips[node].append(edge.latency_p50_us)
            both[node].append(edge.both_ways_gbps)
    return {
        node: NodeStatistics(
            positive_median(sent[node]),
            positive_median(received[node]),
            positive_median(trips[node]),
            positive_median(both[node]),
            tested[node],
            failed[node],
        )
        for node in nodes
    }


def by_size(edges: Iterable[Edge]) -> list[SizeStatistics]:
    """The medians of all edges for each message size, smallest first; 0 if not measured."""
    rows: defaultdict[int, list[SizeStatistics]] = defaultdict(list)
    for edge in edges:
        for row in edge.by_size:
            rows[row.size_bytes].append(row)
    return [
        SizeStatistics(
            size,
            positive_median(row.bandwidth_gbps for row in rows[size]) or 0.0,
            positive_median(row.latency_p50_us for row in rows[size]) or 0.0,
            positive_median(row.latency_p99_us for row in rows[size]) or 0.0,
        )
        for size in sorted(rows)
    ]


def of_link(link: Link, edges: Iterable[Edge]) -> tuple[list[Edge], list[Edge]]:
    """The good and the failed edges of one pair."""
    mine = [edge for edge in edges if edge.link == link]
    return [e for e in mine if not e.failure], [e for e in mine if e.failure]
