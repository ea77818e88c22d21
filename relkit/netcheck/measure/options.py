"""How a check measures, and its deadlines."""

from __future__ import annotations

from dataclasses import dataclass

# How much longer than the probe itself the controller waits for the agents' replies.
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How the pairs are measured, and how long each step may take.

    Args:
        start_s: for all agents to start.
        timeout_s: for one probe of one pair, and for any other reply of an agent.
        duration_s: of one bandwidth measurement.
        streams: parallel connections.
        sizes_bytes: message sizes, smallest first; the largest gives the bandwidth, and if there
            are several, the statistics of each are kept.
        both_ways: also measure both directions at once.
        compute_rounds: how often each node's devices are scored; 0: not at all.
        rate_rounds: how often the devices of nodes that share their host with no other node are
            timed in one go, in their own time; 0: not at all.
    """

    start_s: float = 30.0
    timeout_s: float = 20.0
    duration_s: float = 0.5
    streams: int = 4
    sizes_bytes: tuple[int, ...] = (1 << 20,)
    both_ways: bool = False
    compute_rounds: int = 0
    rate_rounds: int = 0
