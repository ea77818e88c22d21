"""What the network check measures and concludes: edges, facts about nodes, diagnoses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """An undirected pair of nodes, by the names that the user gave them; low < high."""

    low: str
    high: str

    @classmethod
    def between(cls, first: str, second: str) -> Link:
        """The link of two nodes, whichever is named first."""
        if first == second:
            raise ValueError(f"a node has no link to itself: {first}")
        return cls(min(first, second), max(first, second))

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
    NO_ROUTE = "no route to the peer"
    PROBE_ERROR = "the probe failed"
    DEADLINE = "ran out of time"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class SizeStatistics:
    """Statistics of one direction for messages of one size.

    Args:
        size_bytes: of each message; bandwidth_gbps: as in Edge.
        latency_p50_us, latency_p99_us: time for one such message to go there and back, us; 0 if
            it was not measured, or would take longer than a second at this bandwidth.
    """

    size_bytes: int
    bandwidth_gbps: float = 0.0
    latency_p50_us: float = 0.0
    latency_p99_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Edge:
    """One directed measurement between two nodes in one round; it mirrors a line of edges.jsonl.

    Args:
        source, target: node names; data flowed from source to target.
        round: number of the round, from 0.
        probe: "tcp", "gloo", "nccl", "ib", or "sim" in the simulator.
        size_bytes: message size that the bandwidth was measured with.
        bandwidth_gbps: achieved in this direction alone, Gbit/s; 0 if it failed.
        both_ways_gbps: achieved in this direction while both were in use; 0 if not measured.
        latency_p50_us, latency_p99_us: round trip, us; 0 if not measured.
        failure: why there is no result; detail: the raw error.
        accused: the node that the failure itself points at (an agent that never answered), or "".
        by_size: statistics of each size, smallest first, if several were asked for; else empty.
        under_load: all pairs of two switches were measured at once, on purpose, or one of them
            alone to compare with.
        fabric: what carried the data, where the probe says so: NCCL's "IB" or "Socket"; else "".
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
    by_size: tuple[SizeStatistics, ...] = ()
    under_load: bool = False
    fabric: str = ""

    @property
    def link(self) -> Link:
        """The undirected pair."""
        return Link.between(self.source, self.target)


@dataclass(frozen=True, slots=True)
class Port:
    """A network port of a node that is up.

    Args:
        name: of the device: "eth0", "mlx5_0".
        kind: "ethernet", "infiniband", "roce", "efa", or "ipoib" (IP over InfiniBand).
        speed_mbps: of the line, as the kernel says it.
        mtu: bytes; 0 where the kind has none.
        interface: the network interface that belongs to it, or "".
        network: the IP network that the interface is in, as "10.8.0.0/16"; "" without an address.
    """

    name: str
    kind: str
    speed_mbps: int
    mtu: int = 0
    interface: str = ""
    network: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node's agent reports about the node; it mirrors a line of nodes.jsonl.

    Args:
        name: as the user gave it; hostname: as the node calls itself; address: used for probes.
        answered: the agent came up; detail: why not; host_down: because the host cannot be
            reached.
        interface, mtu, speed_mbps, duplex: of the route to the peers ("" or 0 if unknown).
        compute_gflops: speed of a small matrix product on the CPU (never added to a network
            time); memory_gbps: memory bandwidth, GB/s. 0 if not measured.
        clock_skew_s: node clock minus controller clock.
        unauthenticated_connections: connections to probe listeners from peers that did not know
            the run's secret.
        ports: that are up, without virtual ones.
        unable: why which probe cannot run, see relkit.netcheck.measure.probes.choice.
        settings: variables that choose a job's transport, as "NCCL_IB_DISABLE=1".
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
    unauthenticated_connections: int = 0
    ports: tuple[Port, ...] = ()
    unable: str = ""
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When an edge counts as bad.

    Args:
        slow_fraction: an edge below (1 - slow_fraction) of the fleet's level is suspect.
        min_bandwidth_gbps: absolute minimum, 0 for none; max_latency_us: maximum, 0 for none.
        baseline: link -> bandwidth_gbps of an earlier good run; empty for none.
    """

    slow_fraction: float = 0.1
    min_bandwidth_gbps: float = 0.0
    max_latency_us: float = 0.0
    baseline: dict[Link, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One node, link or group that is at fault.

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
    """How often transient slowdowns affected measurements, and which losses they can hide.

    Args:
        rate: estimated share of all first measurements that a transient slowdown affected.
        repeated: slow measurements that were repeated; taken_back: of these, how many were at full
            speed then.
        noise: relative sigma of one measurement otherwise.
        link_loss: the smallest loss, as a share, at which a single link that is slow in one
            direction would still have been diagnosed; 1 if only a dead one would.
        node_loss: the same for a node.
    """

    rate: float
    repeated: int
    taken_back: int
    noise: float
    link_loss: float
    node_loss: float


@dataclass(frozen=True, slots=True)
class NarrowUplink:
    """An uplink that is slow when many pairs use it at once.

    Args:
        switch: its name; nodes: all behind it.
        way: "out" for what they send to others, "in" for what they receive.
        pairs: how many used it at once; share: of a pair's normal speed that each of them reached.
        alone_share: the share that one pair alone reached; None if that was not measured.
        is_only_together: one pair alone is at full speed, so that no single pair shows the fault.
        rounds: in how many rounds it was slow with partners that are not.
    """

    switch: str
    way: str
    nodes: tuple[str, ...]
    pairs: int
    share: float
    alone_share: float | None
    is_only_together: bool
    rounds: int


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """What loading uplinks on purpose has shown.

    Args:
        narrow: uplinks that are slow under load.
        doubtful: switches of which at least one is slow, and it is not known which.
        tested, switches: how many uplinks were loaded, of how many.
        rounds: that were used for it.
        share: of a pair's normal speed that pairs reached under load, the median: below 1 the
            network between the switches is oversubscribed.
    """

    narrow: tuple[NarrowUplink, ...] = ()
    doubtful: tuple[str, ...] = ()
    tested: int = 0
    switches: int = 0
    rounds: int = 0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class NetVerdict:
    """What is at fault, what is inconclusive, and what was never measured.

    Args:
        diagnoses: most certain first.
        inconclusive: sets of nodes of which at least one is at fault, each with a sentence.
        tested_links, possible_links: coverage; a pair that was never tested is not healthy.
        rounds: rounds used.
        interference: set if transient slowdowns were frequent enough to hide a fault.
        load: what uplinks carry when they are loaded on purpose; None if they were not.
    """

    diagnoses: tuple[Diagnosis, ...] = ()
    inconclusive: tuple[tuple[tuple[str, ...], str], ...] = ()
    tested_links: int = 0
    possible_links: int = 0
    rounds: int = 0
    interference: Interference | None = None
    load: LoadVerdict | None = None
