"""What the sources of a verdict said, and where they contradict each other; pure."""

from __future__ import annotations

from dataclasses import replace

from relkit.findings import Finding, Report, Status
from relkit.flight_recorder.join_sources import JoinedJob, lone_rank
from relkit.hang.model import Culprit, HangVerdict, RankView
from relkit.hang.words import of_ranks
from relkit.ranks import RankSet

DISPUTED = "RK-HANG-017"
LEFT_OUT = "RK-HANG-018"
# Stacks are of one moment, and logs hold few operations: without a dump a verdict is worth less.
WITHOUT_DUMPS = 0.8
# So it is where dumps and logs say different things, of whichever ranks: it rests on all of them.
DISPUTED_SCORE = 0.8
_MAX_REASONS = 8
_MAX_FILES = 1000


def by_sources(verdict: HangVerdict, joined: JoinedJob) -> HangVerdict:
    """The verdict with what each source said of the culprits, and with the certainty it allows.

    Args:
        verdict: of the joined job; joined: what it was reached with.
    """
    culprits = tuple(_by_sources(c, joined) for c in verdict.culprits)
    if joined.dumps:
        return replace(verdict, culprits=culprits)
    lone = lone_rank(joined.job)
    if lone is not None:
        culprits = tuple(c for c in culprits if not _is_in_operation(lone))
    if culprits:
        return replace(verdict, culprits=culprits)
    why = verdict.inconclusive
    if lone is not None:
        why = f"rank {lone.rank} waits, and nothing of the other ranks shows for whom"
    return replace(verdict, culprits=(), inconclusive=f"{why}; {_judged_by(joined)}")


def _is_in_operation(view: RankView) -> bool:
    return view.hook is not None and bool(view.hook.in_flight)


def _judged_by(joined: JoinedJob) -> str:
    kinds = [("stacks", joined.stacks), ("logs", joined.logs)]
    used = " and ".join(
        f"{kind} of {of_ranks(RankSet.of(ranks))}" for kind, ranks in kinds if ranks
    )
    return f"no rank has a dump: judged by {used}"


def _by_sources(culprit: Culprit, joined: JoinedJob) -> Culprit:
    reasons, score = [*culprit.reasons, *joined.said.get(culprit.rank, ())], culprit.score
    if joined.disputes:
        score = round(score * DISPUTED_SCORE, 2)
    if not joined.dumps:
        score = round(score * WITHOUT_DUMPS, 2)
        reasons.append(_judged_by(joined))
    return replace(culprit, reasons=tuple(dict.fromkeys(reasons)), score=score)


def with_sources(report: Report, joined: JoinedJob) -> Report:
    """The report with findings and facts on its sources."""
    findings = list(report.findings)
    if joined.disputes:
        findings.append(_disputed(joined))
    if joined.left_out:
        findings.append(_left_out(joined))
    sources = {
        "dumps": RankSet.of(joined.dumps).fold(),
        "stacks": RankSet.of(joined.stacks).fold(),
        "logs": RankSet.of(joined.logs).fold(),
        "left_out": list(joined.left_out),
    }
    files = [{"path": str(path), "used_as": what} for path, what in sorted(joined.used.items())]
    facts = {**report.facts, "sources": sources, "files": files[:_MAX_FILES]}
    facts["passed_over"] = list(joined.passed_over)
    return replace(report, findings=tuple(findings), facts=facts)


def _disputed(joined: JoinedJob) -> Finding:
    ranks = RankSet.of(dispute.rank for dispute in joined.disputes)
    return Finding(
        id=DISPUTED,
        status=Status.WARN,
        title=f"the dump and the log of {of_ranks(ranks)} contradict each other",
        ranks=ranks.fold(),
        reasons=_shortened([f"rank {d.rank}: {d.sentence}" for d in joined.disputes]),
        advice="Check that dumps and logs are of the same attempt of the job: their times, and "
        "whether a restart came between them. Leave out what is older, and run it again.",
    )


def _left_out(joined: JoinedJob) -> Finding:
    count = len(joined.left_out)
    advice = (
        "Name a file of stacks after its rank, as in rank3.txt. Where a log does not say of which "
        "rank its lines are, do the same."
    )
    if any(": of job " in reason for reason in joined.left_out):
        advice = f"One job is judged at a time: name the folder of each. {advice}"
    return Finding(
        id=LEFT_OUT,
        status=Status.WARN,
        title=f"{count} {'file' if count == 1 else 'files'} beside the dumps could not be used, or "
        "not in full",
        reasons=_shortened(list(joined.left_out)),
        advice=advice,
    )


def _shortened(reasons: list[str]) -> tuple[str, ...]:
    rest = len(reasons) - _MAX_REASONS
    return (*reasons[:_MAX_REASONS], *([f"and {rest} more"] if rest > 0 else []))
