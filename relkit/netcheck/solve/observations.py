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

# One measurement never raises the log-likelihood of a fault by more than this: less than a
# diagnosis needs, so that a single transient slowdown can raise a suspicion and nothing more.
MAX_PER_EDGE = 10.0
_MIN_GBPS = 1e-9


@dataclass(frozen=True, slots=True)
class TransientSlowdowns:
    """How much a slow measurement still counts, given how often transient slowdowns occur.

    Args:
        depths: shares of the expected bandwidth that transient slowdowns left, ascending.
        max_gain: bound on the log-likelihood of a measurement between two depths; one entry more
            than depths.
        rate: share of first measurements that were slowed, estimated.
        repeated: slow first measurements that were repeated.
        taken_back: of these, those that were at full speed then.
    """

    depths: Floats
    max_gain: Floats
    rate: float = 0.0
    repeated: int = 0
    taken_back: int = 0

    def bound(self, share: Floats, weight: Floats) -> Floats:
        """The most that measurements at these shares of what is expected may count."""
        known = self.max_gain[np.searchsorted(self.depths, share)]
        # What no transient slowdown explains has the full bound, whatever the other direction did.
        bounds: Floats = np.where(known < MAX_PER_EDGE, known * weight, MAX_PER_EDGE)
        return np.where(share > 0.0, bounds, MAX_PER_EDGE)


NO_TRANSIENT_SLOWDOWNS = TransientSlowdowns(np.empty(0), np.array([MAX_PER_EDGE]))


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
        expected: bandwidth of each measurement without a fault, Gbit/s.
        transients: how often something else than a fault slowed a measurement, and how deep.
        weight: of each measurement if a transient slowdown explains it: 1, or down to 0.5 where
            the other direction of the same pair was slow in the same round too.
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
    transients: TransientSlowdowns = field(default_factory=lambda: NO_TRANSIENT_SLOWDOWNS)

    @property
    def crosses(self) -> NDArray[np.bool_]:
        """Which measurements went from one group to another."""
        ours, theirs = self.group[self.source], self.group[self.target]
        between: NDArray[np.bool_] = (ours != theirs) & (ours >= 0) & (theirs >= 0)
        return between


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
    """Turn edges into arrays for the solver.

    Args:
        edges: of any rounds and probes; edges of a node outside `nodes` are ignored.
        nodes: all nodes, each once.
        thresholds: where the baseline has the link, it replaces the fleet's level; an edge that
            breaks an absolute bound counts as slow by at least twice `slow_fraction`.
        groups: node -> switch.
        split: compare edges between groups with each other only (an oversubscribed network).
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
    # Less than a bit a second is nothing at all, and quotients of it would overflow.
    bandwidth = np.where(np.isfinite(bandwidth) & (bandwidth >= _MIN_GBPS), bandwidth, 0.0)
    expected = _expected(kept, bandwidth, thresholds, groups if split else {})
    ratio = np.where(bandwidth > 0.0, bandwidth / expected, 0.0)
    noise = noise_level(ratio) if len(kept) else PRIOR_NOISE
    ratio = _with_bounds(ratio, kept, thresholds)
    group, names = _groups(nodes, groups)
    return Observations(
        nodes=tuple(nodes),
        source=np.array([number[edge.source] for edge in kept], dtype=np.int64),
        target=np.array([number[edge.target] for edge in kept], dtype=np.int64),
        round=np.array([edge.round for edge in kept], dtype=np.int64),
        ratio=ratio,
        accused=np.array([number.get(edge.accused, -1) for edge in kept], dtype=np.int64),
        group=group,
        group_names=names,
        noise=noise,
        expected=expected,
        weight=np.ones(len(kept)),
    )


def _groups(nodes: Sequence[str], groups: Mapping[str, str]) -> tuple[Ints, tuple[str, ...]]:
    """The number of each node's group, -1 without one, and the names of the groups."""
    names = tuple(sorted({groups[name] for name in nodes if name in groups}))
    place = {name: number for number, name in enumerate(names)}
    numbers = [place.get(groups.get(name, ""), -1) for name in nodes]
    return np.array(numbers, dtype=np.int64), names


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
    for number in range(len(kinds)):
        like = kind == number
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
    """The mean of each directed pair, so that pairs measured often do not set the norm."""
    pairs: dict[tuple[str, str], int] = {}
    place = [pairs.setdefault((edges[at].source, edges[at].target), len(pairs)) for at in alive]
    means: Floats = np.bincount(place, weights=bandwidth[alive]) / np.bincount(place)
    return means


def _with_bounds(ratio: Floats, edges: Sequence[Edge], thresholds: Thresholds) -> Floats:
    """The ratios, lowered where an edge breaks an absolute bound."""
    broken = np.array([_breaks_a_bound(edge, thresholds) for edge in edges], dtype=bool)
    return np.where(broken, np.minimum(ratio, 1.0 - 2.0 * thresholds.slow_fraction), ratio)


def _breaks_a_bound(edge: Edge, thresholds: Thresholds) -> bool:
    too_slow = 0.0 < edge.bandwidth_gbps < thresholds.min_bandwidth_gbps
    too_far = 0.0 < thresholds.max_latency_us < edge.latency_p50_us
    return too_slow or too_far
