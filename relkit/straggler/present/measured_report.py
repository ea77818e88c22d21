"""A job that was judged by traces or a table -> Report: who, since when, why, what it cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.ranks import RankSet
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.measured_steps import MeasuredSteps
from relkit.straggler.model import Cause
from relkit.straggler.present.metrics import breakdown, main_part
from relkit.straggler.present.report import IDS, advice, facts_of, host_of, seconds, what, who
from relkit.straggler.score.measured_job import JudgedJob, fewest_steps

_MORE = "Trace more steps: schedule(wait=1, warmup=2, active=20)."
_PARTS = {
    Cause.COMPUTE: "compute",
    Cause.INPUT: "waiting for input",
    Cause.NETWORK: "communication, when nobody is waited for,",
    Cause.HOST: "time outside of compute, input and communication",
}


def measured_report(
    measured: MeasuredSteps,
    judged: JudgedJob,
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one job.

    Args:
        measured: what was read; judged: what was concluded.
        argv, started, duration_s: see Report.
    """
    history = judged.history
    findings = [_accused(measured, judged, raised) for raised in history.verdicts]
    findings += _could_not_tell(measured, judged)
    findings += [_accused(measured, judged, raised) for raised in history.recovered]
    findings += [_suspected(measured, judged, *pair) for pair in judged.suspects]
    findings += _as_a_whole(judged)
    if not any(finding.status in (Status.FAIL, Status.UNKNOWN) for finding in findings):
        findings.append(_nobody(measured, judged))
    if measured.notes or measured.not_judged:
        findings.append(_not_seen(measured))
    return Report(
        "straggler",
        tuple(findings),
        facts=_facts(measured, judged),
        started=time.time() if started is None else started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def _accused(measured: MeasuredSteps, judged: JudgedJob, raised: RaisedVerdict) -> Finding:
    history, verdict = judged.history, raised.verdict
    part = main_part(breakdown(history, verdict.rank), verdict.cause)
    ended = not raised.holds
    host = host_of(history, verdict.rank)
    return Finding(
        id=IDS[verdict.cause],
        status=Status.WARN if ended else Status.FAIL,
        title=f"{who(history, raised)} {what(raised, part)} {_since(judged, raised)}; "
        f"{_cost(measured, judged, raised)}",
        ranks=str(verdict.rank),
        nodes=fold([host] if host else []),
        reasons=(*verdict.reasons, _compared(measured, verdict.rank)),
        evidence=(
            Evidence(
                "local time of a step", round(1.0 + verdict.score, 4), "x its peers'",
                how=measured.how,
            ),
            Evidence("confidence", round(verdict.confidence, 3)),
            Evidence("cost", round(verdict.cost_s, 3), "s", how="what if it were as its peers"),
            Evidence("cost", _hours(measured, verdict.cost_s), _hours_unit(measured)),
            Evidence("steps read", len(judged.numbers)),
        ),
        advice="" if ended else advice(verdict.cause, verdict.subject, part),
    )  # fmt: skip


def _since(judged: JudgedJob, raised: RaisedVerdict) -> str:
    first = raised.verdict.first_step
    if not raised.holds:
        return f"from step {first:,} to {raised.ended_step:,}"
    is_all = len(judged.numbers) > 0 and first <= judged.numbers[0]
    return f"since step {first:,}" + (", the first that was read" if is_all else "")


def _cost(measured: MeasuredSteps, judged: JudgedJob, raised: RaisedVerdict) -> str:
    cost_s = raised.verdict.cost_s
    if cost_s <= 0.0:
        return "it has cost the job no time: another one is as slow"
    until = raised.ended_step if not raised.holds else judged.numbers[-1]
    during = (judged.numbers >= raised.verdict.first_step) & (judged.numbers <= until)
    spent_s = float(np.nansum(judged.step_s[during]))
    share = f", {100 * min(1.0, cost_s / spent_s):.2g} % of their time" if spent_s > 0.0 else ""
    hours = f"{_hours(measured, cost_s):.3g} {_hours_unit(measured)}"
    return f"it cost the job {seconds(cost_s)} in {int(during.sum()):,} steps{share} ({hours})"


def _hours(measured: MeasuredSteps, cost_s: float) -> float:
    """What all ranks together waited, in hours of a device each."""
    return float(f"{cost_s * measured.world_size / 3600.0:.4g}")


def _hours_unit(measured: MeasuredSteps) -> str:
    return "GPU-hours" if measured.devices else "rank-hours"


def _compared(measured: MeasuredSteps, rank: int) -> str:
    role = {each.rank: each.role for each in measured.ranks}
    peers = RankSet.of(each for each in role if each != rank and role[each] == role[rank])
    return f"held against {peers.in_words()}" if peers else "held against its own past"


def _suspected(
    measured: MeasuredSteps, judged: JudgedJob, raised: RaisedVerdict, why_not: str
) -> Finding:
    rank = raised.verdict.rank
    return Finding(
        "RK-STRAG-006",
        Status.WARN,
        f"{who(judged.history, raised)} {what(raised)} {_since(judged, raised)}, but is not "
        f"accused: {why_not}",
        ranks=str(rank),
        reasons=(*raised.verdict.reasons, _compared(measured, rank)),
        advice="Trace it again, with kernels where there is a device; "
        "`relkit launch` knows who waited for a core."
        if measured.busy_host_shows
        else "Bring the missing part, or trace it again.",
    )


def _could_not_tell(measured: MeasuredSteps, judged: JudgedJob) -> list[Finding]:
    if judged.history.verdicts:
        return []
    steps, ranks = len(judged.numbers), RankSet.of(each.rank for each in measured.ranks)
    roles = [each.role for each in measured.ranks if each.role]
    if len(ranks) < 2:
        why, todo = (
            f"only {ranks.in_words()} was read, and nothing to compare it with",
            "Name the files of all ranks, or the folder that holds them.",
        )
    elif not steps:
        why, todo = "no step was read of two ranks", "Trace the same steps on all ranks."
    elif steps < (fewest := fewest_steps(measured)):
        why, todo = f"{steps} steps were read, and it takes {fewest}", _MORE
    elif len(set(roles)) == len(roles):
        why, todo = (
            "no two ranks are known to do equal work (stages of a pipeline, or other groups)",
            "Name the traces of several data-parallel replicas.",
        )
    else:
        return []
    return [
        Finding("RK-STRAG-010", Status.UNKNOWN, f"could not tell: {why}",
                reasons=_leaning(judged), advice=todo)
    ]  # fmt: skip


def _leaning(judged: JudgedJob) -> tuple[str, ...]:
    """Who is the slowest in so few steps: no verdict."""
    history = judged.history
    if not len(judged.numbers) or not np.isfinite(history.scores).any():
        return ()
    rank = int(np.nanargmax(history.scores))
    known = history.local_s[rank][np.isfinite(history.local_s[rank])]
    mates = np.flatnonzero((history.peers == history.peers[rank]) & (history.peers >= 0))
    others = history.local_s[[each for each in mates if each != rank]]
    if not known.size or not np.isfinite(others).any():
        return ()
    usual_s = float(np.nanmedian(others))
    more = float(np.mean(known)) / usual_s - 1.0 if usual_s > 0.0 else 0.0
    return (f"rank {rank} took the longest, {more:+.0%} against its peers, in what there is",)


def _as_a_whole(judged: JudgedJob) -> list[Finding]:
    if judged.whole is None:
        return []
    raised, cause = judged.whole
    verdict = raised.verdict
    return [
        Finding(
            "RK-STRAG-012",
            Status.WARN,
            f"the job as a whole takes {100 * verdict.score:.3g} % longer since step "
            f"{verdict.first_step:,}; no rank is slower than its peers",
            reasons=(f"most of it is {_PARTS[cause]}".rstrip(","),),
            evidence=(Evidence("time of a step", round(1 + verdict.score, 4), "x what it was"),),
            advice="Look for what all ranks share: storage, network, a change of batch or length; "
            "`relkit netcheck` measures the network.",
        )
    ]


def _nobody(measured: MeasuredSteps, judged: JudgedJob) -> Finding:
    ranks = RankSet.of(each.rank for each in measured.ranks)
    last = int(judged.numbers[-1])
    return Finding(
        "RK-STRAG-005",
        Status.OK,
        f"nobody is {'named' if judged.suspects else 'slow'}: {ranks.in_words()} up to step "
        f"{last:,}, by {measured.how}",
        evidence=(
            Evidence("steps read", len(judged.numbers)),
            Evidence(
                "least slowdown that is said",
                judged.history.settings["min_slowdown"],
                "of a step",
            ),
        ),
    )


def _not_seen(measured: MeasuredSteps) -> Finding:
    reasons = [f"rank {rank} is not judged: {why}" for rank, why in measured.not_judged.items()]
    return Finding(
        "RK-STRAG-009",
        Status.WARN,
        "not everything was seen",
        ranks=RankSet.of(measured.not_judged).fold(),
        reasons=(*measured.notes, *reasons),
        advice="What is missing speaks against nobody; bring it for a surer answer.",
    )


def _facts(measured: MeasuredSteps, judged: JudgedJob) -> dict[str, Any]:
    facts = facts_of(judged.history)
    for row in (*facts["stragglers"], *facts["past_stragglers"]):
        row["cost_gpu_hours"] = _hours(measured, row["cost_s"])
    lost_s = float(np.nansum(judged.ideal.lost_s)) if len(judged.numbers) else 0.0
    spent_s = float(np.nansum(judged.step_s)) if len(judged.numbers) else 0.0
    return {
        **facts,
        "world_size": measured.world_size,
        "steps": len(judged.numbers),
        "measured_by": measured.how,
        "ideal": {
            "lost_s": round(lost_s, 4),
            "lost_share": round(min(1.0, lost_s / spent_s), 4) if spent_s > 0.0 else None,
            "lost_gpu_hours": _hours(measured, lost_s),
        },
        "suspects": [raised.verdict.rank for raised, _ in judged.suspects],
        "files": dict(measured.files),
    }
