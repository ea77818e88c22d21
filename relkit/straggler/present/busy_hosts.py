"""Hosts whose ranks wait for a core: nobody is slow there, there is too little to go round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.ranks import RankSet
from relkit.straggler.history_types import History
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import RUN_QUEUE_WAIT, THROTTLED
from relkit.straggler.present.metrics import step_seconds

# Of the time, from which on a rank counts as waiting; of a core, from which on others count.
_MIN_WAIT, _MIN_CORES = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class BusyHost:
    """One host whose ranks wait.

    Args:
        host: name; ranks: those that wait; wait: share of their time, the mean of these ranks.
        load: who has the cores; None where that is not known.
    """

    host: str
    ranks: RankSet
    wait: float
    load: HostLoad | None

    @property
    def sentence(self) -> str:
        """ "ranks 0-1 (a) wait 38 % of the time for a CPU: other processes use it"."""
        verb = "wait" if len(self.ranks) > 1 else "waits"
        text = f"{self.ranks.in_words()} ({self.host}) {verb} {100 * self.wait:.0f} % of the time"
        return f"{text} for a CPU{self._who()}"

    def _who(self) -> str:
        if self.load is None:
            return ""
        if self.load.other_cores >= _MIN_CORES:
            return ": other processes use it"
        return f": the job needs more than the {self.load.cores} cores of the host"


def busy_hosts(history: History) -> tuple[BusyHost, ...]:
    """Those of a job, by name."""
    if not history.steps:
        return ()
    wait_s = history.parts[RUN_QUEUE_WAIT] - np.nan_to_num(history.parts[THROTTLED])
    known = np.isfinite(wait_s)
    spent_s = known.sum(axis=1) * step_seconds(history)
    total_s = np.where(known, np.maximum(wait_s, 0.0), 0.0).sum(axis=1)
    by_host: dict[str, dict[int, float]] = {}
    for rank, host in enumerate(history.hosts):
        share = min(1.0, float(total_s[rank] / spent_s[rank])) if spent_s[rank] > 0.0 else 0.0
        if share >= _MIN_WAIT:
            by_host.setdefault(host, {})[rank] = share
    return tuple(
        BusyHost(host, RankSet.of(ranks), sum(ranks.values()) / len(ranks), history.loads.get(host))
        for host, ranks in sorted(by_host.items())
    )
