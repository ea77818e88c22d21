"""What went from one place to another between two looks, by the kernel's own counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeTraffic:
    """What went from one place to another between two looks.

    Args:
        source, target: addresses on the way from the nodes; host names after edge_rates.by_host().
        acked_bytes, retransmits: of all connections; busy_s: the longest of one of them, without
            the time in which the receiver's window was full; rtt_s: the longest.
    """

    source: str
    target: str
    acked_bytes: int
    busy_s: float
    retransmits: int = 0
    rtt_s: float = 0.0
