"""What the network check measures and concludes: edges, facts of nodes, convictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """An undirected pair of nodes, by the names that the user gave them; low < high."""

    low: str
    high: str

    @classmethod
    def between(cls, one: str, other: str) -> Link:
        """The link of two nodes, whichever is named first."""
        if one == other:
            raise ValueError(f"a node has no link to itself: {one}")
        return cls(min(one, other), max(one, other))

    def other(self, node: str) -> str:
        """The far end as seen from `node`."""
        return self.high if node == self.low else self.low


class Failure(str, Enum):
    """Why a pair could not be measured."""

    NONE = ""
    NO_AGENT = "no agent answered on the node"
    NO_ANSWER = "no answer (dropped or dead)"
    REFUSED = "connection refused"
    RESET = "connection reset"
    PROBE_ERROR = "the probe failed"
    DEADLINE = "ran out of time"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class SizeFigure:
    """What one direction did with messages of one size.

    Args:
        size_bytes: of each message; bandwidth_gbps: as in Edge.
        latency_p50_us, latency_p99_us: round trip of one such message there and back, us; 0 where
            not measured, or longer than a second by the bandwidth.
    """

    size_bytes: int
    bandwidth_gbps: float = 0.0
    latency_p50_us: float = 0.0
    latency_p99_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Edge:
    """One directed measurement between two nodes in one round.

    Args:
        source, target: node names; data flowed from source to target.
        round: number of the round, from 0.
        probe: "tcp", "gloo", "nccl", "ib", or "sim" in the simulator.
        size_bytes: message size of the bandwidth figure.
        bandwidth_gbps: achieved, Gbit/s in this direction alone; 0 where it failed.
        both_ways_gbps: achieved in this direction while the other ran too; 0 where not measured.
        latency_p50_us, latency_p99_us: round trip, us; 0 where not measured.
        failure: why there is no figure; detail: the raw error.
        accused: the node that the failure itself points at (an agent that never answered), "".
        by_size: smallest size first, where several were asked for; else empty.
    """

    source: str
    target: str
    round: int
    probe: str = "tcp"
    size_bytes: int = 0
    bandwidth_gbps: float = 0.0
    both_ways_gbps: float = 0.0
    latency_p50_us: float = 0.0
    latency_p99_us: float = 0.0
    failure: Failure = Failure.NONE
    detail: str = ""
    accused: str = ""
    by_size: tuple[SizeFigure, ...] = ()

    @property
    def link(self) -> Link:
        """The undirected pair."""
        return Link.between(self.source, self.target)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node's agent says of itself.

    Args:
        name: as the user gave it; hostname: as the node calls itself; address: used for probes.
        answered: the agent came up; detail: why not; host_down: because the machine is not there.
        interface, mtu, speed_mbps, duplex: of the route to the peers ("" or 0 where unknown).
        compute_gflops: a small matrix product per device, its own score (never added to a
            network time); memory_gbps: memory bandwidth, GB/s. 0 where not measured.
        clock_skew_s: node clock minus controller clock.
        strangers: connections to probe listeners that did not know the run's secret.
    """

    name: str
    hostname: str = ""
    address: str = ""
    answered: bool = True
    detail: str = ""
    host_down: bool = False
    interface: str = ""
    mtu: int = 0
    speed_mbps: int = 0
    duplex: str = ""
    compute_gflops: float = 0.0
    memory_gbps: float = 0.0
    clock_skew_s: float = 0.0
    strangers: int = 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When an edge counts as bad.

    Args:
        slow_fraction: an edge below (1 - slow_fraction) of the fleet's median is suspect.
        min_bandwidth_gbps: absolute floor, 0 for none; max_latency_us: ceiling, 0 for none.
        baseline: link -> bandwidth_gbps of an earlier good run; empty for none.
    """

    slow_fraction: float = 0.1
    min_bandwidth_gbps: float = 0.0
    max_latency_us: float = 0.0
    baseline: dict[Link, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conviction:
    """One node, link or group held to be bad.

    Args:
        nodes: one name for a node, two for a link, all members for a group.
        kind: "node", "link" or "group"; name: what to call it ("n3", "n3 - n7", "switch asw-2").
        fault: "dead", "slow", "slow out", "slow in", "slow uplink".
        severity: share of the expected bandwidth that is lost, 0..1.
        confidence: 0..1.
        reasons: why, strongest first.
    """

    nodes: tuple[str, ...]
    kind: str
    name: str
    fault: str
    severity: float
    confidence: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interference:
    """How often something else than a fault slowed a measurement, and what that can hide.

    Args:
        rate: estimated share of all directions, measured once, that a hiccup slowed.
        repeated: slow measurements that were repeated; taken_back: of these, how many were at full
            speed then.
        noise: relative sigma of one measurement besides.
        link_loss: the smallest lost share with which a single link that is slow one way would
            still have been convicted; 1 where nothing short of a failure would.
        node_loss: the same for a node.
    """

    rate: float
    repeated: int
    taken_back: int
    noise: float
    link_loss: float
    node_loss: float


@dataclass(frozen=True, slots=True)
class NetVerdict:
    """Who is convicted, what could not be decided, and what was never looked at.

    Args:
        convictions: most certain first.
        undecided: sets of which at least one member is bad, with a sentence each.
        tested_links, possible_links: coverage; a pair that was never tested is not healthy.
        rounds: rounds used.
        interference: where hiccups were frequent enough to hide a fault.
    """

    convictions: tuple[Conviction, ...] = ()
    undecided: tuple[tuple[tuple[str, ...], str], ...] = ()
    tested_links: int = 0
    possible_links: int = 0
    rounds: int = 0
    interference: Interference | None = None
