"""The answer as a report: one finding that says why, and what else was seen; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relkit.findings import Evidence as Fact
from relkit.findings import Finding, Report, Status
from relkit.ranks import RankSet
from relkit.text.printable import printable_line
from relkit.why.diagnose import SURE
from relkit.why.model import Answer, Evidence, Sighting, SourceFile
from relkit.why.rules.causes import CAUSES
from relkit.why.rules.told import Kind

NAMED = "RK-WHY-001"
WHOLE_JOB = "RK-WHY-002"
NOT_KNOWN = "RK-WHY-003"
NOTHING = "RK-WHY-004"
OTHERS = "RK-WHY-005"
UNUSED = "RK-WHY-006"
_MAX_LISTED = 8
_MAX_FILES = 5000
_MAX_RANKS = 5000


def report_of(
    evidence: Evidence,
    answer: Answer,
    hang: Report | None,
    *,
    argv: Sequence[str],
    started: float,
    duration_s: float,
) -> Report:
    """The report.

    Args:
        evidence: what was read; answer: what follows from it.
        hang: the report on dumps and stacks, None where there are none; its findings come behind
            where they are the answer.
        argv: the command line; started: Unix time, s; duration_s: how long it took.
    """
    findings = [_answer(answer)]
    if hang is not None and answer.cause == "hang":
        findings += hang.findings
    findings += _others(evidence, answer) + _unused(evidence.files)
    return Report(
        command="why",
        findings=tuple(findings),
        facts=_facts(evidence, answer, hang),
        started=started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def _answer(answer: Answer) -> Finding:
    lacking = tuple(
        Fact("missing", printable_line(each.what), how=each.command) for each in answer.missing
    )
    if not answer.cause:
        return Finding(
            NOTHING,
            Status.UNKNOWN,
            "nothing in these files says why the job ended, or that it did",
            evidence=lacking,
            advice="Get what is missing, and name it as well.",
        )
    cause = CAUSES[answer.cause]
    is_named = bool(answer.culprits) or (answer.confidence >= SURE and answer.who != "nobody")
    is_sure = answer.confidence >= SURE and (is_named or cause.whole_job)
    number = NAMED if is_sure and is_named and not cause.whole_job else WHOLE_JOB
    return Finding(
        id=number if is_sure else NOT_KNOWN,
        status=Status.FAIL if is_sure else Status.UNKNOWN,
        title=title_of(answer),
        ranks=RankSet.of(answer.culprits).fold(),
        reasons=tuple(map(printable_line, answer.reasons)),
        evidence=(Fact("confidence", answer.confidence), *lacking),
        advice=cause.advice,
    )


def title_of(answer: Answer) -> str:
    """Who, what and where, in a line; of an answer that has a cause."""
    if answer.cause == "hang" and answer.who == "nobody":
        # Jobs that go on leave such files as well.
        return "nobody: no rank stands out in these dumps and stacks"
    place = f", at {printable_line(answer.place)}" if answer.place else ""
    return f"{printable_line(answer.who)}: {CAUSES[answer.cause].title}{place}"


def _others(evidence: Evidence, answer: Answer) -> list[Finding]:
    """Failures that are not the answer: later ones, and those that the job has outlived."""
    seen = [*answer.others, *(s for s in evidence.outlived if s.kind is Kind.ROOT)]
    if not seen:
        return []
    outlived = set(evidence.outlived)
    lines = [
        f"{each.where}: {'outlived: ' if each in outlived else ''}{each.text}" for each in seen
    ]
    count = len(seen)
    return [
        Finding(
            OTHERS,
            Status.WARN,
            f"{count} other failure{'s are' if count > 1 else ' is'} in these files, which did not "
            "end the job or came later",
            reasons=_shortened(lines),
            advice="Look at them if the answer does not convince.",
        )
    ]


def _unused(files: Sequence[SourceFile]) -> list[Finding]:
    unused = [file for file in files if not file.used_for or file.note]
    if not unused:
        return []
    count = len(unused)
    return [
        Finding(
            UNUSED,
            Status.WARN,
            f"{count} of {len(files)} file{'s' if len(files) > 1 else ''} could not be used, or "
            "not in full",
            reasons=_shortened([f"{file.path}: {file.note}" for file in unused]),
            advice="Nothing, unless one of them should have told something.",
        )
    ]


def _shortened(lines: Sequence[str]) -> tuple[str, ...]:
    rest = len(lines) - _MAX_LISTED
    shown = [printable_line(line)[:500] for line in lines[:_MAX_LISTED]]
    return (*shown, *([f"and {rest} more"] if rest > 0 else []))


def _facts(evidence: Evidence, answer: Answer, hang: Report | None) -> dict[str, Any]:
    return {
        "culprits": list(answer.culprits),
        "who": answer.who,
        "cause": answer.cause,
        "place": answer.place,
        "confidence": answer.confidence,
        "reasons": list(answer.reasons),
        "missing": [{"what": m.what, "command": m.command} for m in answer.missing],
        "first_errors": [
            {"who": who, **_sighting(sighting)}
            for who, sighting in list(answer.first_of.items())[:_MAX_RANKS]
        ],
        "hang": None if hang is None else str(hang.facts.get("verdict", "")),
        "files": [
            {"path": str(file.path), "used_for": file.used_for, "note": file.note}
            for file in evidence.files[:_MAX_FILES]
        ],
    }


def _sighting(sighting: Sighting) -> dict[str, Any]:
    return {
        "cause": sighting.cause,
        "kind": sighting.kind.name.lower(),
        "text": sighting.text,
        "file": str(sighting.path),
        "line": sighting.line,
        "code": sighting.code,
    }
