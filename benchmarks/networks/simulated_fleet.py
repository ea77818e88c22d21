"""A fleet that exists only as numbers: nodes, links and uplinks with faults, and noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relkit.netcheck.measure.schedule import Schedule
from relkit.netcheck.model import Edge, Failure, Link, NetVerdict, Thresholds
from relkit.netcheck.solve.judge import solve
from relkit.netcheck.solve.load_tests import clear_of, load_verdict


@dataclass(frozen=True, slots=True)
class Ways:
    """Share of the healthy capacity that is left in each direction; 0 is dead.

    Args:
        out: leaving the node or group; for a link from its low to its high node.
        into: the other direction.
    """

    out: float = 1.0
    into: float = 1.0

    @property
    def dead(self) -> bool:
        """Nothing gets through either way."""
        return self.out == 0.0 and self.into == 0.0


HEALTHY = Ways()


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    """Capacities of a fleet; everything that is not named is healthy.

    A directed edge reaches the least capacity on its path (the source's out, the target's in,
    the link, and between groups the uplinks out and in) times noise. Noise is drawn anew for
    every directed measurement, independent of all others.

    Args:
        nodes: names. groups: node -> switch.
        node_ways, link_ways, group_ways: the faults.
        healthy_gbps: what a healthy edge reaches before noise.
        noise: sigma, relative. lognormal: exp(sigma z) instead of 1 + sigma z.
        uplink_pairs: switch -> how many pairs its uplink carries at full speed, each way; more at
            once share it. Switches that are not named carry all of theirs.
        transient_rate: chance that something else slows one directed measurement; it then reaches
            a share of what it would, uniform from `transient_min_share` to 1.
    """

    nodes: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)
    node_ways: Mapping[str, Ways] = field(default_factory=dict)
    link_ways: Mapping[Link, Ways] = field(default_factory=dict)
    group_ways: Mapping[str, Ways] = field(default_factory=dict)
    healthy_gbps: float = 100.0
    noise: float = 0.05
    lognormal: bool = False
    transient_rate: float = 0.0
    transient_min_share: float = 0.3
    uplink_pairs: Mapping[str, float] = field(default_factory=dict)

    def capacity(self, source: str, target: str) -> float:
        """Share of the healthy bandwidth that can go from source to target, without noise."""
        healthy = HEALTHY
        least = min(
            self.node_ways.get(source, healthy).out, self.node_ways.get(target, healthy).into
        )
        if self.link_ways:
            link = Link.between(source, target)
            ways = self.link_ways.get(link, healthy)
            least = min(least, ways.out if source == link.low else ways.into)
        ours, theirs = self.groups.get(source), self.groups.get(target)
        if ours is not None and theirs is not None and ours != theirs:
            least = min(
                least,
                self.group_ways.get(ours, healthy).out,
                self.group_ways.get(theirs, healthy).into,
            )
        return least

    def _left(self, way: tuple[str, str], phase: Sequence[tuple[str, str]]) -> float:
        """The share of one pair's speed that uplinks leave it, among all that send now."""
        groups = self.groups
        ends = [groups.get(node, "") for node in way]
        if ends[0] == ends[1]:
            return 1.0
        crossing = [
            (groups.get(one, ""), groups.get(other, ""))
            for one, other in phase
            if groups.get(one) != groups.get(other)
        ]
        left = 1.0
        for side, switch in enumerate(ends):
            if switch in self.uplink_pairs:
                users = sum(pair[side] == switch for pair in crossing)
                left = min(left, self.uplink_pairs[switch] / max(users, 1))
        return left

    def measure(
        self, pairs: Iterable[tuple[str, str]], number: int, rng: np.random.Generator
    ) -> list[Edge]:
        """Both directions of each pair, as one round of probes would report them."""
        pairs = list(pairs)
        ways = [way for one, other in pairs for way in ((one, other), (other, one))]
        # All connecting ends send first, then all others.
        phases = [[(one, other) for one, other in pairs], [(other, one) for one, other in pairs]]
        crowded = {way: self._left(way, phase) for phase in phases for way in phase}
        drawn = rng.standard_normal(len(ways)) * self.noise
        factors = np.exp(drawn) if self.lognormal else np.maximum(1.0 + drawn, 0.01)
        if self.transient_rate > 0.0:
            slowed = rng.random(len(ways)) < self.transient_rate
            factors = np.where(
                slowed, factors * rng.uniform(self.transient_min_share, 1.0, len(ways)), factors
            )
        edges = []
        for (source, target), factor in zip(ways, factors.tolist(), strict=True):
            share = min(self.capacity(source, target), crowded[source, target])
            if share <= 0.0:
                edge = Edge(source, target, number, "sim", failure=Failure.NO_ANSWER)
            else:
                speed = self.healthy_gbps * share * factor
                edge = Edge(source, target, number, "sim", bandwidth_gbps=speed)
            edges.append(edge)
        return edges


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What a whole check of a simulated fleet gave.

    Args:
        rounds: the pairs of each round. edges: all measurements. verdict: of the solver.
    """

    rounds: tuple[tuple[tuple[str, str], ...], ...]
    edges: tuple[Edge, ...]
    verdict: NetVerdict


def run(
    fleet: SimulatedFleet,
    schedule: Schedule,
    *,
    seed: int = 0,
    thresholds: Thresholds | None = None,
    groups: Mapping[str, str] | None = None,
) -> SimulatedRun:
    """Play a schedule to its end on a simulated fleet and judge it.

    Args:
        seed: of the noise. groups: what the solver is told of switches.
    """
    rng = np.random.default_rng(seed)
    rounds: list[Sequence[tuple[str, str]]] = []
    edges: list[Edge] = []
    while pairs := schedule.next_round(edges):
        measured = fleet.measure(pairs, len(rounds), rng)
        edges += [replace(edge, under_load=schedule.under_load) for edge in measured]
        rounds.append(pairs)
    plain = [edge for edge in edges if not edge.under_load]
    loaded = [edge for edge in edges if edge.under_load]
    slow = (thresholds or Thresholds()).slow_fraction
    load = load_verdict(plain, loaded, groups or {}, slow)
    verdict = solve(clear_of(plain, load, groups or {}), fleet.nodes, thresholds, groups)
    verdict = replace(verdict, load=load, rounds=len(rounds))
    return SimulatedRun(tuple(tuple(pairs) for pairs in rounds), tuple(edges), verdict)
