"""DLRover's two-round node check as a rule on simulated fleets, written from its description.

Round 0 pairs nodes in rank order; an odd one joins the last pair. A node's time is one matmul plus
one all-reduce of its group; a group with a dead path fails and counts as 3,600 s. If anyone failed
or is a straggler, round 1 sorts all nodes by time and pairs the fastest with the slowest. A node
has failed if it failed in both rounds; it is a straggler if the lesser of its times is above twice
the median of these. Fleets of up to three nodes are never localised.

In its favour: the matmul is free of noise, and stragglers are always excluded (its
--exclude-straggler). The node-group variant is not reproduced.
"""

from __future__ import annotations

import itertools
import statistics

import numpy as np

from benchmarks.networks.simulated_fleet import SimulatedFleet

FAILED_MS = 3_600_000.0


def excluded_nodes(
    fleet: SimulatedFleet,
    rng: np.random.Generator,
    *,
    matmul_ms: float = 15.0,
    allreduce_ms: float = 1.0,
) -> set[str]:
    """The nodes that the rule takes out of the job.

    Args:
        matmul_ms: 0 judges by the network time alone, which the rule does not do.
        allreduce_ms: of a healthy pair.
    """

    def timed(groups: list[list[str]], number: int) -> dict[str, float]:
        times: dict[str, float] = {}
        for group in groups:
            edges = fleet.measure(itertools.combinations(group, 2), number, rng)
            slowest = min(edge.bandwidth_gbps for edge in edges) / fleet.healthy_gbps
            time = matmul_ms + allreduce_ms / slowest if slowest > 0.0 else FAILED_MS
            times |= dict.fromkeys(group, time)
        return times

    def bad(times: dict[str, float]) -> set[str]:
        bound = 2.0 * statistics.median(times.values())
        return {node for node, time in times.items() if time >= FAILED_MS or time > bound}

    first = timed(_grouped(list(fleet.nodes)), 0)
    if not bad(first) or len(fleet.nodes) <= 3:
        return set()
    ranked = sorted(fleet.nodes, key=lambda node: first[node])
    half = len(ranked) // 2
    ends = [node for pair in zip(ranked[:half], reversed(ranked), strict=False) for node in pair]
    ends += ranked[half : len(ranked) - half]
    second = timed(_grouped(ends), 1)
    return bad({node: min(first[node], second[node]) for node in fleet.nodes})


def _grouped(nodes: list[str]) -> list[list[str]]:
    """Neighbours in pairs; an odd one joins the last pair."""
    pairs = [nodes[at : at + 2] for at in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2:
        pairs[-1].append(nodes[-1])
    return pairs
