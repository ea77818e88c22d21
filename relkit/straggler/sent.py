"""What went from one address to another between two looks, by the kernel's own counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sent:
    """What went from one address to another since the last look.

    Args:
        here, there: addresses.
        acked_bytes, retransmits: of all connections; busy_s: the longest of one of them, without
            the time in which the receiver's window was full; rtt_s: the longest.
    """

    here: str
    there: str
    acked_bytes: int
    busy_s: float
    retransmits: int
    rtt_s: float
