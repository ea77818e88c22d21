"""What `relkit launch` shows and keeps of saves and restarts, in its timeline folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from relkit.accounting.journal import Journal
from relkit.accounting.records import Record, What
from relkit.commands.launch_parts.page_notes import PageNotes
from relkit.commands.shared.incident import keep_report, log_unwritten
from relkit.commands.shared.incident_page import IncidentPage
from relkit.errors import RelkitError
from relkit.flash_checkpoint.on_disk.saved_on_disk import newest
from relkit.launch.accounting.accounts import Accounts
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_outcome import persist_report as flash_report
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.job.exit_status import end_of_child
from relkit.launch.job.node_name import node_name
from relkit.launch.job.settings import Log
from relkit.launch.metrics.sources import Checkpoint
from relkit.launch.recovery.persist_host import PersistHost
from relkit.launch.replicas.replica_host import ReplicaHost
from relkit.log_lines import name_job, say_report
from relkit.log_lines import say as log
from relkit.output import write_atomic
from relkit.ttp.actions import Limits
from relkit.ttp.environment import switched_on
from relkit.ttp.report import persist_report
from relkit.ttp.save_outcome import SaveOutcome

RECOVERY_REPORT, RECOVERY_PAGE = "recovery.json", "recovery.html"
FLASH_REPORT = "flash_checkpoint.json"
TTP_REPORT = "ttp.json"


def accounts_into(
    folder: Path, page: IncidentPage, *listeners: Callable[[Record], None]
) -> Accounts:
    """The accounts of this launcher.

    Args:
        folder: the timeline folder, where recovery.json and recovery.html go after restarts.
        page: of the newest incident, which says what was done.
        listeners: hear each record of the journal; none may raise or wait.
    """

    def ended(records: Sequence[Record]) -> None:
        # Only here: most runs need neither the report nor the page.
        from relkit.accounting.report import run_report
        from relkit.reports import recovery_page

        report = run_report(records, argv=tuple(sys.argv))
        if not report.facts["restarts"]:
            return
        keep_report(report, folder / RECOVERY_REPORT)
        try:
            write_atomic(folder / RECOVERY_PAGE, recovery_page.render(report))
        except (RelkitError, OSError) as error:
            log_unwritten(error)
            return
        log(f"what each restart took is in {folder / RECOVERY_PAGE}")

    hear = (PageNotes(page).take, *listeners)

    def noted(record: Record) -> None:
        for listener in hear:
            listener(record)

    def journal(job_id: str, log: Log) -> Journal:
        name_job(job_id, node_name())
        made = Journal(job_id, log, on_record=noted)
        # Where `relkit status` and `relkit page` find this job's reports.
        made.add(What.TIMELINE, text=str(folder.absolute()))
        return made

    return Accounts(journal, log, ended)


def slot_host(
    settings: PersistSettings, folder: Path, replicas: ReplicaHost, page: IncidentPage
) -> SlotHost:
    """The host of this launcher's slots.

    Args:
        settings: how slots are persisted.
        folder: the timeline folder, where flash_checkpoint.json goes.
        replicas: on other hosts.
        page: of the newest incident.
    """

    def publish(outcome: PersistOutcome, job_id: str) -> None:
        log(outcome.line)
        page.note(outcome.line)
        started = time.time() - outcome.duration_s
        report = flash_report(outcome, job_id=job_id, argv=sys.argv, started=started)
        keep_report(report, folder / FLASH_REPORT)

    return SlotHost(log, settings, publish, replicas)


def checkpoints_of(host: SlotHost) -> list[Checkpoint]:
    """What this node has in memory, and what is on disk where its ranks keep their checkpoints.

    It may wait for a disk.
    """
    slots = host.slots
    if slots is None or not slots.has_any:
        return []
    memory = slots.newest_saved()
    seen = [] if memory is None else [Checkpoint("memory", memory[0], memory[1] / 1e9)]
    try:
        saved = newest(Path(slots.root)) if slots.root else None
    except RelkitError:
        saved = None
    if saved is not None and saved.saved_unix_ns > 0:
        seen.append(Checkpoint("disk", saved.step, saved.saved_unix_ns / 1e9))
    return seen


def persist_host(limits: Limits, folder: Path, page: IncidentPage) -> PersistHost | None:
    """The host of this launcher; None where ENABLE_TTP is off.

    Args:
        limits: deadlines.
        folder: the timeline folder, where ttp.json goes.
        page: of the newest incident.
    """

    if not switched_on():
        return None

    def ended(outcome: SaveOutcome, job_id: str) -> None:
        started = time.time() - outcome.duration_s
        report = persist_report(outcome, job_id=job_id, argv=sys.argv, started=started)
        page.note(f"try-to-persist: {report.findings[0].title}{_kept_in(outcome)}")
        say_report(report, apart=True)
        keep_report(report, folder / TTP_REPORT)

    return PersistHost(limits, log, end_of_child, ended)


def _kept_in(outcome: SaveOutcome) -> str:
    return f"; it is in {outcome.folder}" if outcome.folder else ""
