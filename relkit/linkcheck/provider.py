"""The one shape of everything that can measure a link inside a host."""

from __future__ import annotations

from typing import Protocol

from relkit.linkcheck.model import Counter, Inventory, Measurement


class LinkProvider(Protocol):
    """Measures links of one vendor's hardware, or replays what was measured before.

    Attributes:
        name: "metax", "nvidia" or "replay".
        timeout_s: limit of one measurement where the user gives none, s.
    """

    name: str
    timeout_s: float

    def look(self, timeout_s: float) -> Inventory:
        """Find the hardware and the tools.

        Args:
            timeout_s: limit for each program that has to be asked, s.

        Raises:
            NoLinkHardware: there is nothing here to measure, or nothing to measure it with.
        """

    def measure(self, source: int, target: int, timeout_s: float) -> Measurement:
        """Measure one direction between two sockets of the inventory.

        May be called from several threads at once. A failure is a Measurement too; nothing is
        raised, and no process is left when it returns.
        """

    def counters(self, timeout_s: float) -> tuple[Counter, ...]:
        """Counters of single lanes since look(); empty where there are none."""
