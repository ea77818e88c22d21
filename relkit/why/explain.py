"""Paths -> the report of why: collect, tell jobs apart, diagnose, show."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from relkit.files.input_file import held_in_memory
from relkit.findings import Report
from relkit.why.collect import Collected, collect
from relkit.why.diagnose import diagnose
from relkit.why.evidence import evidence_of
from relkit.why.hang_files import is_one_run
from relkit.why.jobs import Job, jobs_of
from relkit.why.model import Answer, Evidence
from relkit.why.show import report_of
from relkit.why.show_jobs import asked_which, of_several


@dataclass(frozen=True, slots=True)
class _Judged:
    """One job, and the answer for it."""

    job: Job
    evidence: Evidence
    answer: Answer
    hang: Report | None


def explain(
    paths: Sequence[Path],
    *,
    argv: Sequence[str] = (),
    stdin: BinaryIO | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Why a job failed or hung, from whatever it left behind.

    Args:
        paths: files and folders; `-` is standard input.
        argv: the command line; stdin: of this process where left out.
        progress: called with how many files have been read, and how many there are.

    Raises:
        UsageProblem: a path does not exist, or a folder holds too many files.
    """
    began, started = time.monotonic(), time.time()
    collected = collect(paths, stdin=stdin, progress=progress)

    def shown(judged: _Judged) -> Report:
        return report_of(
            judged.evidence,
            judged.answer,
            judged.hang,
            argv=argv,
            started=started,
            duration_s=time.monotonic() - began,
        )

    with held_in_memory(collected.held):
        return _report(collected, shown)


def _report(collected: Collected, shown: Callable[[_Judged], Report]) -> Report:
    jobs = jobs_of(collected.facts, is_one_run)
    judged = [_judged(job) for job in jobs.jobs]
    if len(judged) == 1:
        return shown(judged[0])
    # The newest that failed: one that still runs, or ended well, is no answer.
    failed = [each for each in judged if each.answer.cause]
    named = [each for each in failed if each.answer.cause != "hang" or each.answer.culprits]
    chosen = next(iter((*named, *failed, *judged)))
    answers = [(each.job.name, each.answer) for each in judged]
    if jobs.is_sure:
        return of_several(shown(chosen), chosen.job.name, answers, jobs.by)
    whole = _judged(Job("", tuple(collected.facts)))
    said = {(each.answer.cause, each.answer.culprits) for each in (whole, *judged)}
    if len(said) == 1 or (whole.answer.cause, whole.answer.culprits) == (
        chosen.answer.cause,
        chosen.answer.culprits,
    ):
        return shown(whole)
    return asked_which(shown(whole), whole.answer, answers)


def _judged(job: Job) -> _Judged:
    evidence, hang = evidence_of(job.facts)
    return _Judged(job, evidence, diagnose(evidence), hang)
