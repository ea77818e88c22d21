"""What `relkit status` and `relkit top` show: accounts of jobs, with how the running ones do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from relkit.accounting import journal_folder
from relkit.accounting.account import account_of
from relkit.accounting.progress import Progress, progress_of
from relkit.accounting.read_journal import read_journal
from relkit.accounting.report import job_report, jobs_report, newest_run, state_of
from relkit.errors import BadInputFile
from relkit.files.input_file import read_input
from relkit.findings import Report
from relkit.live_job.gpus import gpus_here
from relkit.live_job.saved import Saved, age_words, saved_of, saved_words
from relkit.live_job.slow import slow_of
from relkit.text.foreign_json import parse_object
from relkit.text.local_time import local_time

HEADER = (
    "job", "health", "nodes", "ranks", "attempt", "step", "rate", "eta", "slow", "saved",
    "restarts", "ettr", "begun", "last finding",
)  # fmt: skip
_RUNS = ("running", "recovering")
_REPORT, _MAX_REPORT_BYTES = "report.json", 16 << 20
_OTHERS = re.compile(r"relkit-([0-9]{1,10})-jobs")


def status_report(job: str | None, *, argv: tuple[str, ...], started: float) -> Report:
    """Of one job, or of all of this user on this host.

    Args:
        job: its id; None for all.

    Raises:
        BadInputFile: there is no such job here.
    """
    if job is not None:
        report = job_report(job, argv=argv, started=started)
        rows = [_row(job, report.facts, [e["node"] for e in report.facts["launchers"]], started)]
        facts = {**report.facts, "live": rows[0]}
    else:
        report = jobs_report(argv=argv, started=started)
        rows = [_row(each["job_id"], each, each["nodes"], started) for each in report.facts["jobs"]]
        facts = {**report.facts, "jobs": rows, "other_users": other_users()}
    facts["gpus"] = [asdict(gpu) for gpu in gpus_here()] if _any_runs(rows) else []
    return replace(report, facts=facts, duration_s=time.time() - started)


def _any_runs(rows: list[dict[str, Any]]) -> bool:
    return any(row["state"] in _RUNS for row in rows)


def _row(job: str, known: Mapping[str, Any], here: list[int], now_s: float) -> dict[str, Any]:
    """What `jobs` and `live` hold of one job.

    Args:
        known: facts of its account; here: numbers of its nodes on this host.
    """
    state, restarts = str(known["state"]), known["restarts"]
    progress, sentence = _progress(job, state)
    saved = saved_of(job, now_s) if state in _RUNS else ()
    return {
        "job_id": known["job_id"],
        "state": state,
        "health": progress.health,
        # A launcher that was started again on its node has left two journals.
        "nodes": sorted(set(here)),
        "of_nodes": progress.nodes,
        "ranks": progress.ranks,
        "attempt": progress.attempt,
        "step": progress.step,
        "step_age_s": _age(progress.step_unix_s, now_s),
        "steps_total": progress.total,
        "rate_per_s": _rounded(progress.rate_per_s),
        "eta_s": _rounded(progress.eta_s),
        "slow": list(slow_of(job)) if state in _RUNS else [],
        "saved": [asdict(each) for each in saved],
        "restarts": sum(restarts.values()) if isinstance(restarts, Mapping) else restarts,
        "last_finding": _finding(progress.timeline, job, known["begun_unix_s"]) or sentence,
        "timeline": progress.timeline,
        **{name: known[name] for name in ("ettr", "ettr_basis", "wall_s", "begun_unix_s")},
    }


def _progress(job: str, state: str) -> tuple[Progress, str]:
    """How it does, and its last fault in words."""
    journals = []
    for file in journal_folder.journals_of(job):
        with suppress(BadInputFile):
            journals.append(read_journal(file))
    if not journals:
        return Progress(state), ""
    first = newest_run(journals)[0]
    account = account_of(first.records)
    faults = [each.fault.text for each in account.recoveries if each.fault is not None]
    # It may have ended since the account was made: what is shown of it is of one moment.
    return progress_of(account, first.records, state_of(account, first)), (faults or [""])[-1]


def _finding(timeline: str, job: str, begun_unix_s: float) -> str:
    """The newest verdict on this run, in the launcher's timeline folder; "" for none."""
    if not timeline:
        return ""
    path = Path(timeline) / _REPORT
    try:
        if path.stat().st_mtime < begun_unix_s:
            return ""
        plain = parse_object(read_input(path, _MAX_REPORT_BYTES))
        finding = plain["findings"][0]
        said = f"{finding['id']} {finding['title']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return said if plain.get("job_id") == job else ""


def other_users() -> list[int]:
    """Users whose jobs have left something on this host, which is not looked at."""
    users = set()
    with suppress(OSError):
        for folder in journal_folder.shared_memory().iterdir():
            match = _OTHERS.fullmatch(folder.name)
            if match is not None and int(match[1]) != os.geteuid():
                users.add(int(match[1]))
    return sorted(users)


def _age(unix_s: float | None, now_s: float) -> float | None:
    return None if unix_s is None else round(max(0.0, now_s - unix_s), 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def cells_of(row: Mapping[str, Any]) -> list[str]:
    """The cells of HEADER. "-": not known."""
    here = ",".join(str(node) for node in row["nodes"]) or "-"
    of_nodes = f" of {row['of_nodes']}" if row["of_nodes"] > 1 else ""
    total = f"/{row['steps_total']}" if row["steps_total"] else ""
    return [
        row["job_id"],
        row["health"],
        f"{here}{of_nodes}",
        str(row["ranks"] or "-"),
        "-" if row["attempt"] < 0 else str(row["attempt"]),
        "-" if row["step"] is None else f"{row['step']}{total}",
        rate_words(row["rate_per_s"]),
        age_words(row["eta_s"]),
        ", ".join(row["slow"]) or "-",
        saved_words(Saved(**each) for each in row["saved"]),
        "-" if row["restarts"] is None else str(row["restarts"]),
        "-" if row["ettr"] is None else f"{row['ettr']:.1%}",
        local_time(row["begun_unix_s"]),
        row["last_finding"] or "-",
    ]


def rate_words(per_s: float | None) -> str:
    """ "3.2 steps/s", or "12 s/step" where that is easier to read."""
    if not per_s:
        return "-"
    return f"{per_s:.3g} steps/s" if per_s >= 1.0 else f"{1.0 / per_s:.3g} s/step"
