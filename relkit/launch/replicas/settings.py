"""How launchers replicate what is in memory."""

from __future__ import annotations

from dataclasses import dataclass

# Of the link, where its speed is known; else so many MB/s.
LINK_SHARE, UNKNOWN_LINK_MB_PER_S = 0.1, 100.0


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """What the user asked for.

    Args:
        count: how many other hosts keep a copy of each rank's state; 0: none.
        max_mb_per_s: limit on what a node sends, MB/s; 0: none; below 0: a share of the link.
        timeout_s: how long fetching copies may take before workers start, s.
    """

    count: int = 0
    max_mb_per_s: float = -1.0
    timeout_s: float = 600.0


def limit_bytes_per_s(settings: ReplicaSettings, link_mbps: int) -> float:
    """What a node may send, bytes/s; 0: as fast as it can.

    Args:
        link_mbps: of the interface, megabits/s; 0 where not known.
    """
    if settings.max_mb_per_s >= 0:
        return settings.max_mb_per_s * 1e6
    if link_mbps <= 0:
        return UNKNOWN_LINK_MB_PER_S * 1e6
    return LINK_SHARE * link_mbps / 8 * 1e6
