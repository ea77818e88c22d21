"""How busy a host is, and who with: a rank that waits for a core there is not slow itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Means over the time in which a job was watched.

    Args:
        cores: that the host has; busy_cores: of them at work, for anybody; own_cores: for the
            ranks of the job and their children.
    """

    cores: int
    busy_cores: float
    own_cores: float

    @property
    def other_cores(self) -> float:
        """At work for other processes."""
        return max(0.0, self.busy_cores - self.own_cores)
