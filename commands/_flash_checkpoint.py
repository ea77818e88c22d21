"""Flash checkpoints in `relkit launch`: the line and the file that say which step is kept."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from relkit.commands._incident import keep_report, log
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome, persist_report
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.replicas.replica_host import ReplicaHost

REPORT = "flash_checkpoint.json"


def slot_host(settings: PersistSettings, folder: Path, replicas: ReplicaHost) -> SlotHost:
    """The host of this launcher's slots.

    Args:
        settings: how slots are persisted.
        folder: the timeline folder, where flash_checkpoint.json goes.
        replicas: on other hosts.
    """

    def publish(outcome: PersistOutcome, job_id: str) -> None:
        log(outcome.line)
        started = time.time() - outcome.duration_s
        report = persist_report(outcome, job_id=job_id, argv=sys.argv, started=started)
        keep_report(report, folder / REPORT)

    return SlotHost(log, settings, publish, replicas)
