"""How a check measures, and its deadlines."""

from __future__ import annotations

from dataclasses import dataclass, replace

# How much longer than the probe itself the controller waits for the agents' replies.
GRACE_S = 5.0
# What a probe needs to begin and to end: torch's have to start first.
_TCP_START_S, _TORCH_START_S = 3.0, 60.0
# Collectives reach their speed with large messages only.
_TCP_SIZES, _COLLECTIVE_SIZES = (1 << 20,), (16 << 20,)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How the pairs are measured, and how long each step may take.

    Args:
        start_s: for all agents to start.
        timeout_s: for one probe of one pair, and for any other reply of an agent.
        duration_s: of one bandwidth measurement.
        streams: parallel connections.
        sizes_bytes: message sizes, smallest first; the largest gives the bandwidth, and if there
            are several, the statistics of each are kept. Empty: the size that suits the probe.
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


def for_probe(options: CheckOptions, probe: str) -> CheckOptions:
    """The options with message sizes, and a limit for each pair, that suit the probe."""
    is_tcp = probe == "tcp"
    sizes = options.sizes_bytes or (_TCP_SIZES if is_tcp else _COLLECTIVE_SIZES)
    # A probe measures up to three times: each way, then both. Of several sizes each has
    # connections and round trips of its own.
    start_s = _TCP_START_S if is_tcp else _TORCH_START_S
    pair_s = 3 * options.duration_s + start_s + 2 * (len(sizes) - 1)
    return replace(options, sizes_bytes=sizes, timeout_s=max(options.timeout_s, pair_s))
