"""What the matched collectives of the ranks tell of each step: who came late, what hosts sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relkit.straggler.score.host_clocks import HostClocks
from relkit.straggler.score.links import Transfer
from relkit.straggler.score.matched_collectives import (
    Groups,
    lateness,
    lateness_by_step,
    match_collectives,
    on_one_clock,
    transfers,
)
from relkit.straggler.step_record import StepTable

# Collectives of all ranks that are put side by side at once.
_MAX_ROWS = 1 << 14


class CollectiveMatcher:
    """Call take() with steps in their order; it learns the clocks and the groups of the job.

    Args:
        world_size: ranks.
    """

    def __init__(self, world_size: int) -> None:
        self._world = world_size
        self._clocks, self._groups = HostClocks(), Groups()
        # Name by rank, "" for one that has not reported yet.
        self.hosts = [""] * world_size

    def clock_offsets(self) -> dict[str, tuple[float, float]]:
        """Host -> (ahead of the first host by, standard error), s."""
        return self._clocks.table()

    def take(self, tables: Sequence[StepTable]) -> tuple[list[StepTable], list[list[Transfer]]]:
        """(the same steps with late_s, the transfers between hosts in each)."""
        for table in tables:
            for record in table.records:
                self.hosts[record.rank] = record.host
        if len(set(self.hosts)) == 1:
            return self._on_one_host(tables), [[] for _ in tables]
        timed, between_hosts = [], []
        for table in tables:
            plain = match_collectives(table.records, self._groups)
            self._clocks.update(plain, self.hosts)
            matched = on_one_clock(plain, self._clocks.offset_s(self.hosts))
            timed.append(replace(table, late_s=lateness(matched, self._world)))
            between_hosts.append(transfers(matched, self.hosts))
        return timed, between_hosts

    def _on_one_host(self, tables: Sequence[StepTable]) -> list[StepTable]:
        rows = sum(len(record.collectives) for record in tables[0].records)
        at_once = max(1, _MAX_ROWS // max(1, rows))
        late_s = np.concatenate(
            [
                lateness_by_step(tables[first : first + at_once], self._groups, self._world)
                for first in range(0, len(tables), at_once)
            ]
        )
        return [replace(table, late_s=late) for table, late in zip(tables, late_s, strict=True)]
