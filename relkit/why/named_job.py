"""The name of a job of `relkit launch` -> what its journal and timeline say of it now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.accounting.account import account_of
from relkit.accounting.journal_folder import jobs_here, journals_of
from relkit.accounting.progress import GOES_ON, HUNG, progress_of
from relkit.accounting.read_journal import JournalRead
from relkit.accounting.records import What
from relkit.accounting.report import journals_of_job, report_of
from relkit.errors import UsageProblem
from relkit.files.input_file import read_input
from relkit.files.usual_timeline import usual_folders
from relkit.findings import Evidence, Finding, Report, Status
from relkit.ranks import RankSet
from relkit.text.foreign_json import parse_object
from relkit.text.nearest import nearest
from relkit.text.printable import printable_line
from relkit.why.diagnose import SURE
from relkit.why.rules.causes import CAUSES
from relkit.why.rules.line_rules import rule_of
from relkit.why.show import NAMED, NOT_KNOWN, NOTHING, WHOLE_JOB

_REPORT = "report.json"
_MAX_REPORT_BYTES = 16 << 20
_MAX_LISTED = 8
_MAX_FOLDERS = 200
# A failure before that was outlived.
_ENDED_WELL = ("running", "succeeded")


@dataclass(frozen=True, slots=True)
class _Fault:
    """What the launcher holds for the newest failure.

    Args:
        text: in words; ranks: at fault; where: that it is from; score: 0 to 1.
    """

    text: str
    ranks: tuple[int, ...]
    where: str
    score: float


def is_job_name(word: str) -> bool:
    """Whether a word can only be the name of a job: no path is called so."""
    return word != "-" and "/" not in word and not Path(word).exists()


def is_known(job_id: str) -> bool:
    """Whether a launcher of this user has left a journal or a verdict on that job on this host."""
    return bool(journals_of(job_id)) or _of_timeline(job_id, 0.0) is not None


def no_such_job(word: str) -> UsageProblem:
    """What to say of a word that is neither a path nor a job."""
    jobs = jobs_here()
    meant = nearest(word, jobs)
    shown = ", ".join(sorted(jobs)[:_MAX_LISTED])
    more = f" and {len(jobs) - _MAX_LISTED} more" if len(jobs) > _MAX_LISTED else ""
    known = f"The jobs of this host are {shown}{more}." if jobs else "No job has run here."
    guess = f" Did you mean {meant!r}?" if meant else ""
    return UsageProblem(
        f"there is no file, folder or job {printable_line(word)!r}.{guess}",
        next_step=f"Name a log, a dump or a folder that holds some, or a job of `relkit status`. "
        f"{known}",
    )


def explain_job(job_id: str, *, argv: Sequence[str] = ()) -> Report:
    """Why a job of this host failed or hangs, as far as its launcher has seen it.

    Args:
        job_id: of which `is_known` is true; argv: the command line.

    Raises:
        BadInputFile: none of its journals can be read.
    """
    started, began = time.time(), time.monotonic()
    findings: tuple[Finding, ...] = ()
    state = "not known"
    if journals_of(job_id):
        read = journals_of_job(job_id)
        status = report_of(
            read.newest, read.earlier, read.failures, argv=tuple(argv), started=started
        )
        findings, state = status.findings, _state(read.newest[0], str(status.facts["state"]))
        begun_s = float(status.facts["begun_unix_s"])
        # What a running job has outlived is told; of one that has ended it is no cause.
        since_s = begun_s if state in _ENDED_WELL else _newest_begin_s(read.newest[0], begun_s)
        folders = _timelines(read.newest)
        fault = _of_timeline(job_id, since_s, folders) or _of_journal(status.facts)
    else:
        fault = _of_timeline(job_id, 0.0)
    finding = _finding(job_id, state, fault)
    if finding.id == NOTHING:
        fault = None
    facts = {
        "job": job_id,
        "state": state,
        "culprits": list(fault.ranks) if fault else [],
        "who": _who(fault) if fault else "nobody",
        "cause": _cause(fault) if fault else "",
        "place": "",
        "confidence": fault.score if fault else 0.0,
        "reasons": [fault.text] if fault else [],
        "missing": [],
        "first_errors": [],
        "hang": None,
        "files": [],
    }
    return Report(
        "why", (finding, *findings), facts, started, time.monotonic() - began, tuple(argv)
    )


def _state(journal: JournalRead, state: str) -> str:
    """That of the account; "hung" where the launcher has seen a running job hang."""
    progress = progress_of(account_of(journal.records), journal.records, state)
    return HUNG if progress.health == HUNG else state


def _newest_begin_s(journal: JournalRead, begun_s: float) -> float:
    """When workers were started last, or a hung job went on; Unix time, s."""
    begins = [
        each.unix_s
        for each in journal.records
        if each.what is What.ATTEMPT or (each.what is What.HEALTH and each.name == GOES_ON)
    ]
    return max(begins, default=begun_s)


def _timelines(journals: Sequence[JournalRead]) -> tuple[Path, ...]:
    """The folders that the launchers of a run have named."""
    return tuple(
        Path(record.text)
        for journal in journals
        for record in journal.records
        if record.what is What.TIMELINE and record.text
    )


def _finding(job_id: str, state: str, fault: _Fault | None) -> Finding:
    name = printable_line(job_id)
    if fault is None or state in _ENDED_WELL:
        past = (f"it has outlived: {fault.text}",) if fault else ()
        return Finding(
            NOTHING,
            Status.UNKNOWN,
            f"nothing says that job {name} has failed: "
            f"{'it runs' if state == 'running' else f'its launcher says {state!r}'}",
            reasons=past,
            advice="While it hangs: `relkit stacks dump --job JOB -o DIR`, then relkit why DIR. "
            "Its output is where the launcher's went: name it as well.",
        )
    sure = fault.score >= SURE
    title = f"{_who(fault)}: "
    return Finding(
        (NAMED if fault.ranks else WHOLE_JOB) if sure else NOT_KNOWN,
        Status.FAIL if sure else Status.UNKNOWN,
        f"{title}{printable_line(fault.text.removeprefix(title))}",
        ranks=RankSet.of(fault.ranks).fold(),
        reasons=(f"{fault.where} says so",),
        evidence=(Evidence("confidence", fault.score),),
        advice=CAUSES[_cause(fault)].advice if not fault.ranks else
        "Name the job's own output as well: it has what that rank said itself.",
    )  # fmt: skip


def _who(fault: _Fault) -> str:
    return RankSet.of(fault.ranks).in_words() if fault.ranks else "nobody"


def _cause(fault: _Fault) -> str:
    known = rule_of(fault.text)
    if known is not None:
        return known[0].cause
    return "hang" if fault.where.endswith(_REPORT) else "launcher"


def _of_timeline(job_id: str, since_unix_s: float, folders: Sequence[Path] = ()) -> _Fault | None:
    """The verdict that the launcher has left in a timeline folder on this job.

    Args:
        since_unix_s: what was written before is of an earlier attempt or run.
        folders: looked at before the usual ones.
    """
    for file in _reports(folders):
        try:
            if file.stat().st_mtime < since_unix_s:
                continue
            plain = parse_object(read_input(file, _MAX_REPORT_BYTES))
        except (OSError, ValueError):
            continue
        verdict, ranks = plain.get("verdict"), plain.get("culprits")
        if plain.get("job_id") != job_id or not isinstance(verdict, str) or not verdict:
            continue
        known = ranks if isinstance(ranks, list) else []
        good = tuple(rank for rank in known if isinstance(rank, int) and rank >= 0)
        return _Fault(verdict, good, str(file), 0.9 if good else 0.3)
    return None


def _reports(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in dict.fromkeys((*folders, *usual_folders())):
        yield folder / _REPORT
        try:
            older = sorted(folder.glob(f"previous-*/{_REPORT}"))[:_MAX_FOLDERS]
        except OSError:
            continue
        yield from older


def _of_journal(facts: Mapping[str, Any]) -> _Fault | None:
    recoveries = [each for each in facts["recoveries"] if each["sentence"]]
    if not recoveries:
        return None
    last = recoveries[-1]
    rank = last["rank"]
    ranks = (rank,) if isinstance(rank, int) and rank >= 0 else ()
    return _Fault(str(last["sentence"]), ranks, "the launcher's journal", 0.8)
