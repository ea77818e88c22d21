"""Edges as arrays: each measurement as a share of what a healthy pair would reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relkit.netcheck.model import Edge, Failure, Thresholds
from relkit.netcheck.solve.robust import PRIOR_NOISE, Floats, healthy_level, noise_level

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# One measurement is never worth more than this many nats: a single hiccup can raise a
# suspicion but, being less than what a conviction takes, can never convict.
MOST_PER_EDGE = 10.0
_LEAST_GBPS = 1e-9


@dataclass(frozen=True, slots=True)
class Hiccups:
    """What hiccups leave of the evidence of a slow measurement.

    Args:
        depths: shares of what was due that hiccups left, ascending.
        nats: evidence that a measurement between two depths has at most; one more than depths.
        rate: share of first measurements that a hiccup slowed, estimated.
        repeated: first measurements that were slow and were repeated; taken_back: of these, those
            at full speed then.
    """

    depths: Floats
    nats: Floats
    rate: float = 0.0
    repeated: int = 0
    taken_back: int = 0

    def most(self, share: Floats, weight: Floats) -> Floats:
        """Nats that measurements at these shares of what is due count for at most."""
        nats = self.nats[np.searchsorted(self.depths, share)]
        # The full weight is the bound for what no hiccup explains, whatever came back.
        least: Floats = np.where(nats < MOST_PER_EDGE, nats * weight, MOST_PER_EDGE)
        return np.where(share > 0.0, least, MOST_PER_EDGE)


NO_HICCUPS = Hiccups(np.empty(0), np.array([MOST_PER_EDGE]))


@dataclass(frozen=True, slots=True)
class Observations:
    """What was measured, by numbers of nodes.

    Args:
        nodes: names; a node's number is its place here.
        source, target, round: of each measurement.
        ratio: achieved over expected bandwidth, 0 for a failure; 1 is healthy.
        accused: number of the node that the failure itself names, else -1.
        group: number of each node's group, -1 without one; group_names: their names.
        noise: relative sigma of one measurement.
        expected: what each measurement should have reached, Gbit/s.
        hiccups: how often something else than a fault slowed a measurement, and how deep.
        weight: of each where such a hiccup would explain it: 1, down to 0.5 where the other
            direction of the same pair was slow in the same round, too.
    """

    nodes: tuple[str, ...]
    source: Ints
    target: Ints
    round: Ints
    ratio: Floats
    accused: Ints
    group: Ints
    group_names: tuple[str, ...]
    noise: float
    expected: Floats
    weight: Floats
    hiccups: Hiccups = field(default_factory=lambda: NO_HICCUPS)

    @property
    def crosses(self) -> NDArray[np.bool_]:
        """Which measurements went from one group to another."""
        ours, theirs = self.group[self.source], self.group[self.target]
        across: NDArray[np.bool_] = (ours != theirs) & (ours >= 0) & (theirs >= 0)
        return across


def largest_only(edges: Sequence[Edge]) -> list[Edge]:
    """One edge a direction, round and probe: the largest message, the one that shows bandwidth."""
    best: dict[tuple[str, str, int, str], Edge] = {}
    for edge in edges:
        key = (edge.source, edge.target, edge.round, edge.probe)
        known = best.get(key)
        if known is None or edge.size_bytes > known.size_bytes:
            best[key] = edge
    return list(best.values())


def observe(
    edges: Sequence[Edge],
    nodes: Sequence[str],
    thresholds: Thresholds,
    groups: Mapping[str, str],
    *,
    split: bool = False,
) -> Observations:
    """Put edges in the form that the solver works on.

    Args:
        edges: of any rounds and probes; edges with a node that is not in `nodes` are left out.
        nodes: all nodes, each once.
        thresholds: the baseline replaces the fleet's level where it knows the link; an edge
            that breaks an absolute bound counts as slow by twice `slow_fraction` at least.
        groups: node -> switch.
        split: edges between groups are held against their own level (an oversubscribed network).
    """
    number = {name: place for place, name in enumerate(nodes)}
    kept = [
        edge
        for edge in largest_only(edges)
        if edge.source in number and edge.target in number and edge.source != edge.target
    ]
    bandwidth = np.array(
        [0.0 if edge.failure is not Failure.NONE else edge.bandwidth_gbps for edge in kept]
    )
    # What is below a bit a second has not passed, and its quotients would overflow.
    bandwidth = np.where(np.isfinite(bandwidth) & (bandwidth >= _LEAST_GBPS), bandwidth, 0.0)
    expected = _expected(kept, bandwidth, thresholds, groups if split else {})
    ratio = np.where(bandwidth > 0.0, bandwidth / expected, 0.0)
    noise = noise_level(ratio) if len(kept) else PRIOR_NOISE
    if thresholds.min_bandwidth_gbps > 0.0 or thresholds.max_latency_us > 0.0:
        broken = np.array([_breaks_a_bound(edge, thresholds) for edge in kept], dtype=bool)
        ratio = np.where(broken, np.minimum(ratio, 1.0 - 2.0 * thresholds.slow_fraction), ratio)
    names = tuple(sorted({groups[name] for name in nodes if name in groups}))
    place = {name: at for at, name in enumerate(names)}
    return Observations(
        nodes=tuple(nodes),
        source=np.array([number[edge.source] for edge in kept], dtype=np.int64),
        target=np.array([number[edge.target] for edge in kept], dtype=np.int64),
        round=np.array([edge.round for edge in kept], dtype=np.int64),
        ratio=ratio,
        accused=np.array([number.get(edge.accused, -1) for edge in kept], dtype=np.int64),
        group=np.array([place.get(groups.get(name, ""), -1) for name in nodes], dtype=np.int64),
        group_names=names,
        noise=noise,
        expected=expected,
        weight=np.ones(len(kept)),
    )


def _expected(
    edges: Sequence[Edge], bandwidth: Floats, thresholds: Thresholds, groups: Mapping[str, str]
) -> Floats:
    """What each edge should reach: the baseline's figure, else the level of edges like it."""
    kinds: dict[tuple[str, int, bool], int] = {}
    kind = np.array(
        [
            kinds.setdefault(
                (edge.probe, edge.size_bytes, groups.get(edge.source) == groups.get(edge.target)),
                len(kinds),
            )
            for edge in edges
        ],
        dtype=np.int64,
    )
    expected = np.ones(len(edges))
    for one in range(len(kinds)):
        like = kind == one
        alive = np.flatnonzero(like & (bandwidth > 0.0))
        if len(alive):
            expected[like] = healthy_level(_once_a_direction(edges, bandwidth, alive))
    if thresholds.baseline:
        for at, edge in enumerate(edges):
            known = thresholds.baseline.get(edge.link, 0.0)
            if known > 0.0:
                expected[at] = known
    return expected


def _once_a_direction(edges: Sequence[Edge], bandwidth: Floats, alive: Ints) -> Floats:
    """The mean of each directed pair: what is measured again and again must not set the norm."""
    pairs: dict[tuple[str, str], int] = {}
    place = [pairs.setdefault((edges[at].source, edges[at].target), len(pairs)) for at in alive]
    means: Floats = np.bincount(place, weights=bandwidth[alive]) / np.bincount(place)
    return means


def _breaks_a_bound(edge: Edge, thresholds: Thresholds) -> bool:
    too_slow = 0.0 < edge.bandwidth_gbps < thresholds.min_bandwidth_gbps
    too_late = 0.0 < thresholds.max_latency_us < edge.latency_p50_us
    return too_slow or too_late
