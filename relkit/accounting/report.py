"""A job's account as a Report, and as rows for the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.accounting import journal_folder
from relkit.accounting.account import PHASES, Account, Basis, Recovery, account_of
from relkit.accounting.journal_folder import JournalFile
from relkit.accounting.progress import HUNG, progress_of
from relkit.accounting.read_journal import JournalRead, read_journal
from relkit.accounting.records import Record, What
from relkit.accounting.words import back_line, lost_words, phases_line, standbys_words
from relkit.errors import BadInputFile, RelkitError
from relkit.findings import Evidence, Finding, Report, Status

HEADER = ("restart", "cause", "total", *PHASES, "other", "step", "lost")
_HOW = "of the launcher's journal, by this host's monotonic clock"
_STANDBY_HOW = "when all of them were last ready; --no-warm-standby leaves them out"
_SUSPICION_HOW = "of a hang, before the timeout; relkit does nothing about one"
_ETTR_HOW = {
    Basis.STEPS: "time in steps that no restart has lost, of the launcher's time",
    Basis.TIME: "by time only: steps that were done again count as well",
}


def job_report(job_id: str, *, argv: tuple[str, ...], started: float) -> Report:
    """What became of a job's time, as its newest launchers on this host have noted it.

    Args:
        job_id: of the launcher; argv, started: of the command.

    Raises:
        BadInputFile: no launcher of the job has left a journal here, or none can be read.
    """
    read = journals_of_job(job_id)
    return report_of(read.newest, read.earlier, read.failures, argv=argv, started=started)


@dataclass(frozen=True, slots=True)
class JobJournals:
    """What the launchers of a job have left on this host.

    Args:
        newest: of the run that began last, by node; earlier: how many are of earlier runs.
        failures: of those that cannot be read, in words.
    """

    newest: tuple[JournalRead, ...]
    earlier: int
    failures: tuple[str, ...]


def journals_of_job(job_id: str) -> JobJournals:
    """Read them.

    Args:
        job_id: of the launcher.

    Raises:
        BadInputFile: there is none, or none can be read.
    """
    files = journal_folder.journals_of(job_id)
    if not files:
        raise BadInputFile(
            f"no launcher of job {job_id!r} of this user has left a journal on this host",
            next_step="`relkit status` lists the jobs that have. Journals are in shared memory: a"
            " restart of the host removes them.",
        )
    journals, failures = [], []
    for file in files:
        try:
            journals.append(read_journal(file))
        except BadInputFile as error:
            failures.append(error)
    if not journals:
        raise failures[0]
    newest = newest_run(journals)
    return JobJournals(newest, len(journals) - len(newest), tuple(str(e) for e in failures))


def newest_run(journals: Sequence[JournalRead]) -> tuple[JournalRead, ...]:
    """Those of the run that began last: launchers on this host that ran at the same time; by node.

    Each launcher of a run may see the others end, and a later run has the same job id.
    """
    # All of one host and, in shared memory, of one boot: their monotonic clocks are the same.
    ordered = sorted(journals, key=lambda each: each.records[0].at_s, reverse=True)
    run: list[JournalRead] = []
    begin_s = float("inf")
    for each in ordered:
        if run and not each.is_live and _last_s(each) < begin_s:
            break
        run.append(each)
        begin_s = min(begin_s, each.records[0].at_s)
    return tuple(sorted(run, key=lambda each: _node(each)))


def _last_s(journal: JournalRead) -> float:
    return max(record.at_s for record in journal.records)


def _node(journal: JournalRead) -> int:
    nodes = [record.node for record in journal.records if record.what is What.ATTEMPT]
    return nodes[-1] if nodes else 0


def run_report(records: Sequence[Record], *, argv: tuple[str, ...]) -> Report:
    """Of a launcher that has just ended its run."""
    return report_of([JournalRead(tuple(records))], argv=argv, started=time.time())


def report_of(
    journals: Sequence[JournalRead],
    earlier: int = 0,
    failures: Sequence[str] = (),
    *,
    argv: tuple[str, ...],
    started: float,
) -> Report:
    """Of the launchers of one run on one host.

    Args:
        journals: one a launcher, by node, at least one; the first speaks for the job.
        earlier: journals of earlier runs of that job id; failures: those that cannot be read.
    """
    accounts = [account_of(each.records) for each in journals]
    first, journal = accounts[0], journals[0]
    findings = [_state(first, journal)]
    if any(each.restarted for each in first.recoveries):
        findings.append(_restarts(first))
    problems = [f"node {_node(each)}: {each.problem}" for each in journals if each.problem]
    if problems or failures:
        findings.append(
            Finding(
                "RK-JOB-005",
                Status.WARN,
                "not all of what the launchers have noted could be used",
                reasons=(*problems, *failures),
                advice="What stands before the damage is used. The launcher's output has the rest.",
            )
        )
    facts = {
        "job_id": first.launcher.text,
        **_facts(first, journal),
        "launchers": [
            {"node": _node(each), **_facts(account, each)}
            for account, each in zip(accounts, journals, strict=True)
        ],
        "earlier_runs": earlier,
    }
    return Report("status", tuple(findings), facts, started=started, argv=argv)


def state_of(account: Account, journal: JournalRead) -> str:
    """Where the launcher's run stands: "running", "recovering", "gone", or how it ended."""
    if account.ended is not None:
        return account.ended.name or "ended"
    if not journal.is_live:
        return "gone"
    if account.recoveries and account.recoveries[-1].total_s is None:
        return "recovering"
    return "running"


def _state(account: Account, journal: JournalRead) -> Finding:
    state, job_id = state_of(account, journal), account.launcher.text
    evidence = [
        Evidence("launcher's time", round(account.wall_s, 3), "s", how=_HOW),
        Evidence("ETTR", _share(account), how=_ETTR_HOW.get(account.basis, "no step was seen")),
    ]
    if (standby := account.standby) is not None:
        evidence.append(Evidence("warm standby", _waiting(standby), how=_STANDBY_HOW))
    if account.suspicions.began:
        evidence.append(Evidence("suspicions", account.suspicions.words, how=_SUSPICION_HOW))
    present = account.suspicions.present
    last = account.recoveries[-1] if account.recoveries else None
    fault = last.fault.text if last is not None and last.fault is not None else ""
    if progress_of(account, journal.records, state).health == HUNG:
        return Finding(
            "RK-JOB-008",
            Status.WARN,
            f"job {job_id} hangs",
            reasons=(present,) if present else (),
            evidence=tuple(evidence),
            advice="`relkit why JOB` has the verdict, and report.html in the timeline folder all "
            "of it. With --on-hang report, or save where there is nothing to save, it stays so "
            "until somebody ends it.",
        )
    if state in ("running", "recovering", "succeeded"):
        words = {
            "running": "runs", "recovering": "is being restarted", "succeeded": "has succeeded",
        }  # fmt: skip
        warns = state == "recovering"
        return Finding(
            "RK-JOB-002" if warns else "RK-JOB-001",
            Status.WARN if warns else Status.OK,
            f"job {job_id} {words[state]}",
            reasons=(fault,) if warns and fault else (present,) if present else (),
            evidence=tuple(evidence),
            advice="Look again in a moment." if warns else "",
        )
    if state == "gone":
        return Finding(
            "RK-JOB-004",
            Status.UNKNOWN,
            f"the launcher of job {job_id} has gone without a word",
            reasons=("its journal has no end, and no process of its number and start time runs",),
            evidence=tuple(evidence),
            advice="It was killed: see the kernel's log for the OOM killer, and the scheduler's.",
        )
    ended = account.ended
    reasons = tuple(text for text in (fault, ended.text if ended else "") if text)
    return Finding(
        "RK-JOB-003",
        Status.FAIL,
        f"job {job_id} has {'failed' if state == 'failed' else 'been ended'}",
        reasons=tuple(dict.fromkeys(reasons)),
        evidence=tuple(evidence),
        advice="See the verdict in the launcher's output and in the timeline folder.",
    )


def _restarts(account: Account) -> Finding:
    restarted = [each for each in account.recoveries if each.restarted]
    causes = ", ".join(f"{cause}: {count}" for cause, count in account.restarts.items())
    times = f"{len(restarted)} time{'' if len(restarted) == 1 else 's'}"
    totals = [each.total_s for each in restarted if each.total_s is not None]
    evidence = [Evidence("restarts", len(restarted))]
    if totals:
        evidence.append(Evidence("longest recovery", round(max(totals), 3), "s", how=_HOW))
    if account.steps_lost is not None:
        evidence.append(Evidence("steps lost", account.steps_lost))
    return Finding(
        "RK-JOB-006",
        Status.WARN,
        f"workers were started again {times} ({causes}); {lost_words(account.steps_lost)}",
        reasons=tuple(_restart_line(each) for each in restarted[-8:]),
        evidence=tuple(evidence),
        advice="The longest phase is where time can be won.",
    )


def _restart_line(recovery: Recovery) -> str:
    sentence = recovery.fault.text if recovery.fault is not None else ""
    if recovery.total_s is None:
        return f"{sentence}; not seen to be back: {phases_line(recovery)}"
    return f"{sentence}; {back_line(recovery)}"


def _waiting(standby: Record) -> str:
    each = f"{standby.size_mb:,.0f} MB each (PSS)" if standby.size_mb else "memory not known"
    return f"{standbys_words(standby.number)}, {each}"


def _share(account: Account) -> str:
    if account.ettr is None:
        return "not known"
    return f"{account.ettr:.1%}" + (" by time only" if account.basis is Basis.TIME else "")


def _facts(account: Account, journal: JournalRead) -> dict[str, Any]:
    ettr, standby = account.ettr, account.standby
    return {
        "state": state_of(account, journal),
        "host": account.launcher.name,
        "begun_unix_s": round(account.launcher.unix_s, 3),
        "wall_s": round(account.wall_s, 3),
        "productive_s": round(account.productive_s, 3) if ettr is not None else None,
        "ettr": None if ettr is None else round(ettr, 6),
        "ettr_basis": account.basis.value,
        "steps_lost": account.steps_lost,
        "restarts": dict(account.restarts),
        "start": _row(account.start),
        "recoveries": [_row(each) for each in account.recoveries],
        "suspicions": {
            "began": account.suspicions.began,
            "went_on": account.suspicions.went_on,
            "became_verdicts": account.suspicions.became_verdicts,
            "present": account.suspicions.present,
        },
        "standby_processes": 0 if standby is None else standby.number,
        "standby_pss_mb": round(standby.size_mb, 1) if standby and standby.size_mb else None,
    }


def _row(recovery: Recovery) -> dict[str, Any]:
    fault, saved = recovery.fault, recovery.saved
    return {
        "cause": "start" if fault is None else fault.name,
        "sentence": "" if fault is None else fault.text,
        "rank": None if fault is None or fault.number < 0 else fault.number,
        "at_unix_s": None if fault is None else round(fault.unix_s, 3),
        "restarted": recovery.restarted,
        "total_s": None if recovery.total_s is None else round(recovery.total_s, 3),
        "reached": recovery.reached,
        "phases_s": {
            name: round(recovery.phases_s[name], 3) if name in recovery.phases_s else None
            for name in PHASES
        },
        "other_s": None if recovery.other_s is None else round(recovery.other_s, 3),
        "step": recovery.step if recovery.step >= 0 else None,
        "steps_lost": recovery.steps_lost,
        "saved_step": None if saved is None else saved.number,
        "saved_by": "" if saved is None else saved.name,
        "standbys": recovery.standbys,
    }


def rows_of(facts: Mapping[str, Any]) -> list[list[str]]:
    """The cells of `HEADER`: the start of the job, then its recoveries. "-": not seen."""
    return [
        [
            str(number) if number else "-",
            row["cause"] if number == 0 or row["restarted"] else f"{row['cause']} (no restart)",
            *(_seconds(each) for each in (row["total_s"], *row["phases_s"].values())),
            _seconds(row["other_s"]),
            *("-" if row[name] is None else str(row[name]) for name in ("step", "steps_lost")),
        ]
        for number, row in enumerate((facts["start"], *facts["recoveries"]))
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def jobs_report(*, argv: tuple[str, ...], started: float) -> Report:
    """All jobs of this user that have left a journal on this host, the newest first."""
    jobs = sorted(_jobs(), key=lambda row: -row["begun_unix_s"])
    unreadable = [row["job_id"] for row in jobs if row["state"] == "unreadable"]
    finding = Finding(
        "RK-JOB-005" if unreadable else "RK-JOB-007",
        Status.WARN if unreadable else Status.OK,
        f"jobs whose journals cannot be read: {', '.join(unreadable)}"
        if unreadable
        else f"{len(jobs)} job{'' if len(jobs) == 1 else 's'} of this user on this host",
        advice="relkit status JOB says what is wrong with each." if unreadable else "",
    )
    return Report("status", (finding,), {"jobs": jobs}, started=started, argv=argv)


def _jobs() -> Iterator[dict[str, Any]]:
    for job in journal_folder.jobs_here():
        files: Sequence[JournalFile] = journal_folder.journals_of(job)
        try:
            facts = job_report(job, argv=(), started=0.0).facts
        except RelkitError:
            changed_s = max((file.changed_s for file in files), default=0.0)
            yield {
                "job_id": job, "state": "unreadable", "nodes": [], "restarts": None,
                "ettr": None, "ettr_basis": Basis.NOTHING.value, "wall_s": None,
                "begun_unix_s": changed_s,
            }  # fmt: skip
            continue
        yield {
            "job_id": facts["job_id"],
            "state": facts["state"],
            "nodes": [each["node"] for each in facts["launchers"]],
            "restarts": sum(facts["restarts"].values()),
            **{name: facts[name] for name in ("ettr", "ettr_basis", "wall_s", "begun_unix_s")},
        }
