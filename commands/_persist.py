"""Try-to-persist in `relkit launch`: its host, and how its end is shown and kept."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from relkit.commands._incident import keep_report, log
from relkit.launch.job.exit_status import end_of_child
from relkit.launch.recovery.persist_host import PersistHost
from relkit.output import as_text, use_colour
from relkit.ttp.actions import Limits
from relkit.ttp.environment import switched_on
from relkit.ttp.report import persist_report
from relkit.ttp.save_outcome import SaveOutcome


def persist_host(limits: Limits, folder: Path) -> PersistHost | None:
    """The host of this launcher; None where ENABLE_TTP is off.

    Args:
        limits: deadlines.
        folder: the timeline folder, where ttp.json goes.
    """

    if not switched_on():
        return None

    def ended(outcome: SaveOutcome, job_id: str) -> None:
        started = time.time() - outcome.duration_s
        report = persist_report(outcome, job_id=job_id, argv=sys.argv, started=started)
        sys.stderr.write("\n" + as_text(report, colour=use_colour(sys.stderr)) + "\n")
        sys.stderr.flush()
        keep_report(report, folder / "ttp.json")

    return PersistHost(limits, log, end_of_child, ended)
