"""What a search for the ranks of this host found, left out and could not look at, as findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from relkit.findings import Finding, Status
from relkit.ranks import RankSet
from relkit.stacks.dump.find_jobs import FoundJobs, JobTargets, who_and_why
from relkit.stacks.dump.job_ranks import LeftOut

_LISTED = 8


def search_findings(search: FoundJobs, folders: Sequence[Path]) -> Iterator[Finding]:
    """Nothing where the processes were named by somebody.

    Args:
        search: the jobs; folders: where the dumps of each are.
    """
    for job, folder in zip(search.jobs, folders, strict=True):
        if job.how:
            yield _job(job, folder)
        if job.missing:
            yield _missing(job)
    if search.left_out:
        yield _left_out(search.left_out)
    if search.unread:
        yield Finding(
            "RK-STK-007",
            Status.WARN,
            f"{len(search.unread)} processes that may be ranks could not be looked at",
            reasons=(who_and_why(search.unread),),
            advice="Run it as that user, or as root.",
        )


def _job(job: JobTargets, folder: Path) -> Finding:
    ranks = RankSet.of(target.rank for target in job.targets)
    helpers = f"; {job.helpers} processes that they started are left out" if job.helpers else ""
    return Finding(
        "RK-STK-005",
        Status.OK,
        f"job {job.name}: {ranks.in_words()} of {job.targets[0].world_size} here, by {job.how}"
        f"{helpers}",
        advice=f"Who is at fault: relkit hang analyze {shlex.quote(str(folder))}",
    )


def _missing(job: JobTargets) -> Finding:
    return Finding(
        "RK-STK-008",
        Status.UNKNOWN,
        f"job {job.name}: {job.missing} more of its ranks should be on this host",
        reasons=(
            "they have ended, or changed the memory that holds their environment (setproctitle)",
        ),
        advice="Look for their processes, and name those with --pid.",
    )


def _left_out(left_out: Sequence[LeftOut]) -> Finding:
    listed = sorted(left_out, key=lambda each: not each.is_doubtful)[:_LISTED]
    reasons = [f"pid {each.process.pid} ({each.process.comm}): {each.reason}" for each in listed]
    more = len(left_out) - len(listed)
    if more:
        reasons.append(f"and {more} more")
    is_doubtful = any(each.is_doubtful for each in left_out)
    return Finding(
        "RK-STK-006",
        Status.WARN if is_doubtful else Status.OK,
        f"{len(left_out)} processes with a rank's environment were not taken for ranks",
        reasons=tuple(reasons),
        advice="If one of them is a rank, name it with --pid." if is_doubtful else "",
    )
