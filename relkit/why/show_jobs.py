"""The files of several jobs: the answer of one, and what the others came to; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from relkit.findings import Finding, Report, Status
from relkit.text.printable import printable_line
from relkit.why.model import Answer
from relkit.why.show import title_of

JOBS = "RK-WHY-007"
WHICH_JOB = "RK-WHY-008"
_MAX_LISTED = 20
_MAX_JOBS = 1000

Answers = Sequence[tuple[str, Answer]]


def of_several(report: Report, chosen: str, answers: Answers, by: str) -> Report:
    """The report on the newest job that failed, with a word on each of the others.

    Args:
        report: on that job; chosen: its name.
        answers: of each job with its name, the newest first; by: how the order is known.
    """
    first, *more = report.findings
    others = [(name, answer) for name, answer in answers if name != chosen]
    newest = "" if answers[0][0] == chosen else f"; the newest, {answers[0][0]}, shows no failure"
    finding = Finding(
        JOBS,
        Status.WARN,
        f"these files are of {len(answers)} jobs: the answer is that of {printable_line(chosen)}, "
        f"the newest that failed {by}{newest}",
        reasons=_listed(others),
        advice="For another one name its files or its folder alone.",
    )
    titled = replace(first, title=f"{printable_line(chosen)}: {first.title}")
    return replace(
        report,
        findings=(titled, finding, *more),
        facts={**report.facts, "job": chosen, "jobs": _facts(answers)},
    )


def asked_which(report: Report, whole: Answer, answers: Answers) -> Report:
    """The report where the files may be of one job or of several, and the answers differ.

    Args:
        report: on all as one job; whole: its answer; answers: of each as a job of its own.
    """
    finding = Finding(
        WHICH_JOB,
        Status.UNKNOWN,
        f"these files may be of one job or of {len(answers)}, and that changes the answer",
        reasons=(f"as one job: {_in_words(whole)}", *_listed(answers)),
        advice="Name the files or the folder of one job alone.",
    )
    nobody: dict[str, Any] = {
        "culprits": [], "who": "nobody", "cause": "", "place": "", "confidence": 0.0, "reasons": [],
        "job": "", "jobs": _facts(answers),
    }  # fmt: skip
    kept = [f for f in report.findings[1:] if f.status is Status.WARN]
    return replace(report, findings=(finding, *kept), facts={**report.facts, **nobody})


def _listed(answers: Answers) -> tuple[str, ...]:
    rest = len(answers) - _MAX_LISTED
    lines = [f"{name}: {_in_words(answer)}" for name, answer in answers[:_MAX_LISTED]]
    return (*map(printable_line, lines), *([f"and {rest} more"] if rest > 0 else []))


def _in_words(answer: Answer) -> str:
    return title_of(answer) if answer.cause else "nothing says why it ended, or that it did"


def _facts(answers: Answers) -> list[dict[str, Any]]:
    return [
        {
            "job": name,
            "culprits": list(answer.culprits),
            "who": answer.who,
            "cause": answer.cause,
            "place": answer.place,
            "confidence": answer.confidence,
        }
        for name, answer in answers[:_MAX_JOBS]
    ]
