"""Flash checkpoints in `relkit launch`: the line and the file that say which step is kept."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from relkit.commands._incident import log
from relkit.errors import RelkitError
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome, persist_report
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.output import write_atomic

REPORT = "flash_checkpoint.json"


def slot_host(settings: PersistSettings, folder: Path) -> SlotHost:
    """The host of this launcher's slots.

    Args:
        settings: how slots are persisted.
        folder: the timeline folder, where flash_checkpoint.json goes.
    """

    def publish(outcome: PersistOutcome, job_id: str) -> None:
        log(outcome.line)
        started = time.time() - outcome.duration_s
        report = persist_report(outcome, job_id=job_id, argv=sys.argv, started=started)
        try:
            write_atomic(folder / REPORT, json.dumps(report.to_json(), indent=1) + "\n")
        except (RelkitError, OSError) as error:
            log(f"the timeline folder could not be written: {error}")

    return SlotHost(log, settings, publish)
