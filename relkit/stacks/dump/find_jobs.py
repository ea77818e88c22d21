"""The ranks of this host's jobs, whoever launched them: by relkit's hook, else by environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.errors import NoSuchProcess, UsageProblem
from relkit.hook.environment import all_job_folders
from relkit.process import procfs
from relkit.stacks.dump.job_ranks import FoundRanks, JobRanks, LeftOut, find_ranks
from relkit.stacks.dump.process_table import Seen, look
from relkit.stacks.dump.rank_claim import RankClaim, claim_of
from relkit.stacks.dump.targets import recorder_of, targets_of_job
from relkit.stacks.engines.base import Target
from relkit.text.job_id import safe_job_id
from relkit.text.printable import printable_line

_NAMED = 8


@dataclass(frozen=True, slots=True)
class JobTargets:
    """One job's ranks on this host.

    Args:
        name: of the job; targets: by rank.
        how: by what they were found, in a few words; "" where somebody named them.
        helpers: how many processes below them have their environment.
        missing: how many ranks more this host has, as the others say.
    """

    name: str
    targets: tuple[Target, ...]
    how: str
    helpers: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """What was ranks.

    Args:
        jobs: at least one.
        left_out: processes with a rank's environment that are no ranks.
        unread: processes that may be ranks and could not be looked at.
    """

    jobs: tuple[JobTargets, ...]
    left_out: tuple[LeftOut, ...] = ()
    unread: tuple[Seen, ...] = ()

    def folders(self, folder: Path) -> tuple[Path, ...]:
        """Where the dumps of each job go: of several, each into a folder of its own."""
        if len(self.jobs) == 1:
            return (folder,)
        return tuple(folder / safe_job_id(job.name) for job in self.jobs)


def find_job(job_id: str, timeout_s: float) -> FoundJobs:
    """The ranks of one job; of several that are called so, all.

    Args:
        job_id: as torchrun's --rdzv-id, the number of a batch system, or what `find_jobs` says.
        timeout_s: for reading the processes of this host, s.

    Raises:
        NoSuchProcess: there is no rank of it here.
        UsageProblem: nothing can be called so.
    """
    refused: UsageProblem | None = None
    hooked: JobTargets | None = None
    try:
        hooked = _by_hook(job_id)
    except NoSuchProcess:
        pass
    except UsageProblem as error:
        # Not as a folder's name; torchrun takes any text.
        refused = error
    if hooked is not None and _alive(hooked):
        return FoundJobs((hooked,))
    ranks = _ranks_here(timeout_s)
    wanted = [job for job in ranks.jobs if job_id in (job.name, *job.names)]
    if wanted:
        return FoundJobs(tuple(map(_targets, wanted)), _near(ranks.left_out, wanted), ranks.unread)
    if hooked is not None:
        # All have ended: their recorders say where they were.
        return FoundJobs((hooked,))
    if refused is not None:
        raise refused
    others = ", ".join(printable_line(job.name) for job in ranks.jobs[:_NAMED])
    raise _none_found(
        f"no rank of job {job_id!r} runs on this host",
        ranks.unread,
        f"The jobs here: {others}." if others else "",
    )


def find_jobs(timeout_s: float) -> FoundJobs:
    """The ranks of all jobs of this host.

    Args:
        timeout_s: for reading the processes of this host, s.

    Raises:
        NoSuchProcess: there is none.
    """
    ranks = _ranks_here(timeout_s)
    jobs = [_targets(job) for job in ranks.jobs]
    pids = {target.pid for job in jobs for target in job.targets}
    # `relkit run` also watches what no launcher has numbered.
    for folder in all_job_folders():
        with suppress(NoSuchProcess, UsageProblem):
            job = _by_hook(folder.name)
            alive = _alive(job)
            if alive and not pids & {target.pid for target in alive}:
                jobs.append(replace(job, targets=alive))
    if not jobs:
        raise _none_found("no rank of any job runs on this host", ranks.unread)
    return FoundJobs(tuple(jobs), ranks.left_out, ranks.unread)


def _by_hook(job_id: str) -> JobTargets:
    return JobTargets(job_id, targets_of_job(job_id), "relkit's recorders")


def _alive(job: JobTargets) -> tuple[Target, ...]:
    return tuple(t for t in job.targets if procfs.is_same_process(t.pid, t.start_ticks))


def _ranks_here(timeout_s: float) -> FoundRanks:
    processes = look(timeout_s)
    claims = {}
    for each in processes:
        claim = claim_of(each.environ, each.network)
        if claim is not None:
            claims[each.pid] = _as_recorded(each.pid, claim)
    return find_ranks(processes, claims, os.getpid())


def _as_recorded(pid: int, claim: RankClaim) -> RankClaim:
    """A warm standby that took over was started with the environment of the worker before it."""
    recorder = recorder_of(pid) if claim.is_hooked else None
    if recorder is None or recorder[1].rank < 0:
        return claim
    return replace(claim, rank=recorder[1].rank, world_size=recorder[1].world_size)


def _targets(job: JobRanks) -> JobTargets:
    host = socket.gethostname()
    targets = []
    for rank in job.ranks:
        process = rank.process
        recorder = recorder_of(process.pid) if rank.claim.is_hooked else None
        targets.append(
            Target(
                process.pid,
                rank.claim.rank,
                job.world_size,
                host,
                job.name,
                recorder[0] if recorder else None,
                process.start_ticks,
            )
        )
    return JobTargets(
        job.name,
        tuple(targets),
        "the environment of processes",
        sum(rank.helpers for rank in job.ranks),
        job.missing,
    )


def _near(left_out: Sequence[LeftOut], jobs: Sequence[JobRanks]) -> tuple[LeftOut, ...]:
    """Those that speak of these jobs."""
    names = {name for job in jobs for name in job.names}
    kept = []
    for each in left_out:
        claim = claim_of(each.process.environ, each.process.network)
        if claim is not None and names & {*claim.names}:
            kept.append(each)
    return tuple(kept)


def _none_found(message: str, unread: Sequence[Seen], step: str = "") -> NoSuchProcess:
    if unread:
        message += (
            f"; {len(unread)} processes that may be ranks could not be read ({who_and_why(unread)})"
        )
        step = f"{step} Run it as that user, or as root.".strip()
    return NoSuchProcess(
        message, next_step=step or "Run it on a host of the job; or name the processes with --pid."
    )


def who_and_why(unread: Sequence[Seen]) -> str:
    """`of user 1000: pid 17 python3, pid 18 python3`."""
    users: dict[int, list[str]] = {}
    for each in unread:
        users.setdefault(each.uid, []).append(f"pid {each.pid} {printable_line(each.comm)}")
    parts = []
    for uid, who in sorted(users.items()):
        more = f" and {len(who) - _NAMED} more" if len(who) > _NAMED else ""
        parts.append(f"of user {uid}: {', '.join(who[:_NAMED])}{more}")
    return "; ".join(parts)
