"""What the other services know that metrics are made of, without knowing them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.accounting.records import Record
from relkit.findings import Report
from relkit.launch.incidents.incident import Incident, Kind
from relkit.metrics.job_samples import Incidents
from relkit.straggler.history_types import Standing


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that this node has.

    Args:
        tier: "memory" or "disk"; step: that it is of; saved_unix_s: when its state was saved.
    """

    tier: str
    step: int
    saved_unix_s: float


class ToldIncidents:
    """Keeps what was told of incidents and network checks; any thread may tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._at_unix_s: dict[str, float] = {}
        self._culprits: tuple[int, ...] = ()
        self.network_check: Report | None = None

    def tell(self, incident: Incident) -> None:
        """Note an incident."""
        kind, culprits = incident.kind.value, incident.report.facts.get("culprits", ())
        with self._lock:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._at_unix_s[kind] = time.time()
            if incident.kind is Kind.HANG:
                self._culprits = tuple(rank for rank in culprits if isinstance(rank, int))

    def so_far(self) -> Incidents:
        """Those of the run."""
        with self._lock:
            return Incidents(dict(self._counts), dict(self._at_unix_s), self._culprits)


@dataclass(frozen=True, slots=True)
class Sources:
    """Each may be asked by any thread, at any time; what is not known here is None, or nothing.

    Args:
        records: of the launcher's journal, with how far the job is now.
        is_hung: the job hangs; None where another node decides on that.
        standing: who is slow.
        recorder_of: the recorder file of a rank of this node.
        checkpoints: those that this node has; may wait for a disk.
        told: incidents and network checks.
    """

    records: Callable[[], Sequence[Record]] = tuple
    is_hung: Callable[[], bool | None] = lambda: None
    standing: Callable[[], Standing | None] = lambda: None
    recorder_of: Callable[[int], Path | None] = lambda _rank: None
    checkpoints: Callable[[], Sequence[Checkpoint]] = tuple
    told: ToldIncidents = field(default_factory=ToldIncidents)
