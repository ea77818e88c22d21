"""What became slower, as findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.timeline.diff import MIN_COUNT, MIN_GROWTH, Change, Diff
from relkit.timeline.durations import JobDurations

_SHOWN = 20


def diff_report(
    diff: Diff,
    before: JobDurations,
    after: JobDurations,
    *,
    argv: Sequence[str],
    started: float,
    duration_s: float,
) -> Report:
    """What became slower.

    Args:
        argv, started, duration_s: as of Report.
    """
    findings = [_slower(change) for change in diff.slower[:_SHOWN]]
    if len(diff.slower) > _SHOWN:
        findings.append(
            Finding(
                "RK-TL-009", Status.FAIL, f"{len(diff.slower) - _SHOWN} more became slower",
                advice="--json lists all.",
            )
        )  # fmt: skip
    if not diff.compared:
        findings.append(
            Finding(
                "RK-TL-010",
                Status.UNKNOWN,
                "nothing is often enough in both recordings to be compared",
                evidence=(Evidence("sorts that are too rare", diff.thin, threshold=MIN_COUNT),),
                advice="Record more steps of both: relkit timeline record JOB --steps 50 -o FOLDER",
            )
        )
    elif not diff.slower:
        findings.append(
            Finding(
                "RK-TL-011",
                Status.OK,
                "nothing became slower",
                evidence=(
                    Evidence("sorts of operations compared", diff.compared),
                    Evidence("too rare to say", diff.thin, threshold=MIN_COUNT),
                ),
            )
        )
    facts: dict[str, Any] = {
        "slower": [_json(each) for each in diff.slower],
        "faster": [_json(each) for each in diff.faster],
        "compared": diff.compared,
        "too_rare": diff.thin,
        "before": _job_json(before),
        "after": _job_json(after),
    }
    return Report("timeline-diff", tuple(findings), facts, started, duration_s, tuple(argv))


def _slower(change: Change) -> Finding:
    evidence = [
        Evidence(
            "median before", round(change.before_ns / 1e3, 1), "us",
            how=f"{change.before_count} operations",
        ),
        Evidence(
            "median now", round(change.after_ns / 1e3, 1), "us",
            round(change.before_ns * (1 + MIN_GROWTH) / 1e3, 1), f"{change.after_count} operations",
        ),
    ]  # fmt: skip
    if change.per_step_ns:
        evidence.append(
            Evidence("makes of a step of a rank", round(change.per_step_ns / 1e3, 1), "us")
        )
    return Finding(
        "RK-TL-009",
        Status.FAIL,
        f"{change.sort.in_words()} takes {change.ratio:.2f} times as long",
        evidence=tuple(evidence),
    )


def _json(change: Change) -> dict[str, Any]:
    return {
        **change.sort._asdict(),
        "before_us": round(change.before_ns / 1e3, 3),
        "after_us": round(change.after_ns / 1e3, 3),
        "ratio": round(change.ratio, 4),
        "before_count": change.before_count,
        "after_count": change.after_count,
        "per_step_us": round(change.per_step_ns / 1e3, 3),
    }


def _job_json(job: JobDurations) -> dict[str, Any]:
    return {
        "ranks": job.ranks,
        "steps": job.steps,
        "dropped": job.dropped,
        "left_out": [list(each) for each in job.left_out],
    }
