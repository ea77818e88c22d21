"""What `relkit launch` shows and keeps of saves and restarts, in its timeline folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from relkit.accounting.journal import Journal
from relkit.accounting.records import Record
from relkit.commands.shared.incident import keep_report, log, log_unwritten
from relkit.errors import RelkitError
from relkit.launch.accounting.accounts import Accounts
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_outcome import persist_report as flash_report
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.job.exit_status import end_of_child
from relkit.launch.recovery.persist_host import PersistHost
from relkit.launch.replicas.replica_host import ReplicaHost
from relkit.output import as_text, use_colour, write_atomic
from relkit.ttp.actions import Limits
from relkit.ttp.environment import switched_on
from relkit.ttp.report import persist_report
from relkit.ttp.save_outcome import SaveOutcome

RECOVERY_REPORT, RECOVERY_PAGE = "recovery.json", "recovery.html"
FLASH_REPORT = "flash_checkpoint.json"
TTP_REPORT = "ttp.json"


def accounts_into(folder: Path) -> Accounts:
    """The accounts of this launcher.

    Args:
        folder: the timeline folder, where recovery.json and recovery.html go after restarts.
    """

    def ended(records: Sequence[Record]) -> None:
        # Only here: most runs need neither the report nor the page.
        from relkit.accounting.report import run_report
        from relkit.reports import html

        report = run_report(records, argv=tuple(sys.argv))
        if not report.facts["restarts"]:
            return
        keep_report(report, folder / RECOVERY_REPORT)
        try:
            write_atomic(folder / RECOVERY_PAGE, html.render(report, {}))
        except (RelkitError, OSError) as error:
            log_unwritten(error)
            return
        log(f"what each restart took is in {folder / RECOVERY_PAGE}")

    return Accounts(Journal, log, ended)


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
        report = flash_report(outcome, job_id=job_id, argv=sys.argv, started=started)
        keep_report(report, folder / FLASH_REPORT)

    return SlotHost(log, settings, publish, replicas)


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
        keep_report(report, folder / TTP_REPORT)

    return PersistHost(limits, log, end_of_child, ended)
