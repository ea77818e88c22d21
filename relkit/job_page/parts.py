"""Collects what is kept of a job: from its timeline folder, its journal and the history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relkit.accounting.report import rows_of
from relkit.errors import RelkitError, UsageProblem
from relkit.files.input_file import read_input
from relkit.findings import Report
from relkit.hang.stored_report import finding_of
from relkit.hang_picture.folder import HangEvidence, read_hang
from relkit.history.database import read
from relkit.history.model import Event
from relkit.history.place import history_folder
from relkit.live_job.report import status_report
from relkit.straggler.transport.history import History, load
from relkit.straggler.transport.locate import KEPT_FILE, locate_history
from relkit.text.foreign_json import parse_object

# What launchers leave beside the report of a hang, by what it is about.
_REPORTS = {
    "netcheck": "netcheck.json",
    "linkcheck": "linkcheck.json",
    "flash": "flash_checkpoint.json",
    "ttp": "ttp.json",
    "straggler": "straggler/report.json",
}
_HANG, _RECOVERY = "report.json", "recovery.json"
_MAX_BYTES = 64 << 20
_MAX_FINDINGS = 64
_YEAR_S = 366 * 86400.0
_MAX_EVENTS = 400


@dataclass(frozen=True, slots=True)
class JobParts:
    """What is kept of a job; what is missing is None, or empty.

    Args:
        job_id: "" where nothing says it; folder: the timeline folder, where one is known.
        account: of `relkit status`, or of recovery.json: states, restarts, ETTR.
        hang: the newest; straggler: what the search for stragglers has kept.
        reports: by what they are about: "netcheck", "linkcheck", "flash", "ttp", "straggler".
        events: of the history, the newest last.
        notes: what could not be read, in words.
    """

    job_id: str
    folder: Path | None
    account: Report | None
    hang: HangEvidence | None
    straggler: History | None
    reports: Mapping[str, Report]
    events: tuple[Event, ...]
    notes: tuple[str, ...]


def parts_of(named: str, *, argv: tuple[str, ...] = ()) -> JobParts:
    """All that is kept of a job.

    Args:
        named: a timeline folder, or a job of this host.

    Raises:
        UsageProblem: it is neither, or nothing is kept of it.
        BadInputFile: no launcher of such a job has left a journal.
    """
    notes: list[str] = []
    now_s = time.time()
    folder: Path | None
    account: Report | None = None
    job_id, begun_s = named, 0.0
    if (folder := Path(named)).is_dir():
        job_id = _job_of(folder)
        account = _account(job_id, argv, now_s) or _kept_account(folder / _RECOVERY, notes)
    else:
        account = status_report(named, argv=argv, started=now_s)
        timeline = str(account.facts["live"]["timeline"])
        folder = Path(timeline) if timeline else None
        begun_s = float(account.facts["begun_unix_s"])
    if folder is None or not folder.is_dir():
        notes.append(f"the timeline folder{f' {folder}' if folder else ''} is not there")
        folder = None
    kept = _kept(folder, job_id, begun_s, notes) if folder is not None else {}
    is_hang = folder is not None and _is_of(folder / _HANG, job_id, begun_s)
    parts = JobParts(
        job_id,
        folder,
        account,
        _hang(folder, notes) if folder is not None and is_hang else None,
        _newest_steps(folder, "straggler" in kept, job_id, begun_s, notes),
        kept,
        _events(job_id, now_s, notes),
        tuple(notes),
    )
    if not (parts.account or parts.hang or parts.reports or parts.events):
        raise UsageProblem(
            f"{named} holds nothing of a job",
            next_step="Name the --timeline-path of a job, or a job of `relkit status`.",
        )
    return parts


def _kept(folder: Path, job_id: str, begun_s: float, notes: list[str]) -> dict[str, Report]:
    kept = {}
    for about, name in _REPORTS.items():
        if _is_of(folder / name, job_id, begun_s):
            report = _stored(folder / name, notes)
            if report is not None:
                kept[about] = report
    return kept


def _is_of(path: Path, job_id: str, begun_s: float) -> bool:
    """A folder may be used by one job after the other: a file is of this one where it says so."""
    try:
        if path.stat().st_mtime < begun_s:
            return False
        said = parse_object(read_input(path, _MAX_BYTES)).get("job_id")
    except (OSError, ValueError):
        # What is there and cannot be read is said later on.
        return path.exists()
    return not isinstance(said, str) or not said or not job_id or said == job_id


def _job_of(folder: Path) -> str:
    for name in (_HANG, _RECOVERY, *_REPORTS.values()):
        try:
            said = parse_object(read_input(folder / name, _MAX_BYTES)).get("job_id")
        except (OSError, ValueError):
            continue
        if isinstance(said, str) and said:
            return said
    return ""


def _account(job_id: str, argv: tuple[str, ...], now_s: float) -> Report | None:
    """What its launcher on this host has noted; the folder may have come from elsewhere."""
    try:
        return status_report(job_id, argv=argv, started=now_s) if job_id else None
    except RelkitError:
        return None


def _kept_account(path: Path, notes: list[str]) -> Report | None:
    """An account that was kept; None where what it says cannot be of one."""
    report = _stored(path, notes)
    if report is None:
        return None
    # What is of one moment is not kept: whoever writes it there has made it up.
    facts = {name: fact for name, fact in report.facts.items() if name != "live"}
    try:
        if "recoveries" in facts:
            rows_of(facts)
        sum(dict(facts.get("restarts", {})).values())
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        notes.append(f"{path.name}: it is damaged")
        return None
    return replace(report, facts=facts)


def _stored(path: Path, notes: list[str]) -> Report | None:
    try:
        plain = parse_object(read_input(path, _MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        notes.append(f"{path.name}: {error}")
        return None
    findings = plain.get("findings")
    meta = plain.get("meta")
    started = meta.get("started") if isinstance(meta, dict) else None
    return Report(
        str(plain.get("schema", "")).removeprefix("relkit.").partition("/")[0],
        tuple(
            finding_of(each)
            for each in (findings if isinstance(findings, list) else [])[:_MAX_FINDINGS]
            if isinstance(each, dict)
        ),
        {key: value for key, value in plain.items() if key not in ("findings", "meta", "status")},
        started=float(started) if isinstance(started, int | float) and 0 <= started < 1e11 else 0.0,
    )


def _hang(folder: Path, notes: list[str]) -> HangEvidence | None:
    try:
        return read_hang(folder)
    except RelkitError as error:
        notes.append(f"the report of a hang: {error}")
        return None


def _newest_steps(
    folder: Path | None, is_kept: bool, job_id: str, begun_s: float, notes: list[str]
) -> History | None:
    """Of a job that has ended from its folder, of one that runs from its launcher."""
    if folder is not None and is_kept:
        return _straggler(folder, notes)
    if not begun_s:
        return None
    try:
        history = locate_history(job_id)
    except RelkitError:
        return None
    # An earlier run may have had the same id.
    return history if (history.step_unix_s >= begun_s).any() else None


def _straggler(folder: Path, notes: list[str]) -> History | None:
    path = folder / KEPT_FILE
    if not path.exists():
        return None
    try:
        return load(path)
    except RelkitError as error:
        notes.append(f"{KEPT_FILE}: {error}")
        return None


def _events(job_id: str, now_s: float, notes: list[str]) -> tuple[Event, ...]:
    if not job_id:
        return ()
    try:
        return tuple(read(history_folder(), now_s - _YEAR_S, job=job_id, most=_MAX_EVENTS))
    except RelkitError as error:
        notes.append(f"the history: {error}")
        return ()


def recovery_rows(parts: JobParts) -> Mapping[str, Any] | None:
    """The facts of an account that has rows of recoveries."""
    facts = None if parts.account is None else parts.account.facts
    is_whole = facts is not None and isinstance(facts.get("recoveries"), list) and "start" in facts
    return facts if is_whole else None
