"""Processes and their claims -> the ranks of each job, one process a rank, and who is none; pure.

What a rank starts has its environment: workers of a data loader, compilers, shells. What starts a
rank may have it, too: `sh -c`, numactl, a launcher inside another launcher's job. Of all these the
rank is the highest Python process; where there is none, the highest program that is no shell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from relkit.stacks.dump.process_table import DENIED, Seen
from relkit.stacks.dump.rank_claim import Launcher, RankClaim

# Programs that start others and wait, by the names of their executables.
_WRAPPERS = frozenset(
    (
        *("sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish", "busybox"),
        *("env", "nice", "ionice", "nohup", "setsid", "stdbuf", "script", "time", "timeout"),
        *("numactl", "taskset", "chrt", "strace", "ltrace", "perf", "nsys", "ncu", "gdb"),
        *("sudo", "su", "runuser", "setpriv", "chroot", "unshare", "nsenter", "uv", "pixi"),
        *("tini", "dumb-init", "docker-init", "catatonit", "sleep", "cat", "tee", "tail"),
        *("singularity", "apptainer", "starter", "starter-suid", "enroot", "bwrap"),
        *("podman", "docker", "crun", "runc", "conmon", "ssh", "sshd", "screen", "tmux"),
        *("srun", "slurmstepd", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy"),
        *("hydra_bstrap_proxy", "orted", "prted", "orterun", "prterun"),
    )
)
# What torch calls a main process, and the beginning of what it calls the workers of a data loader.
_TORCH_MAIN, _TORCH_LOADER = "pt_main_thread", "pt_data_"
_STANDBY = "relkit-standby"
_INIT = 1


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank.

    Args:
        claim: what it says; process: it.
        helpers: how many processes below it have its environment.
    """

    claim: RankClaim
    process: Seen
    helpers: int


@dataclass(frozen=True, slots=True)
class JobRanks:
    """The ranks of one job on this host.

    Args:
        name: what the job is called here; unlike the names of all others on this host.
        names: by which it may be asked for.
        uid: whose it is.
        ranks: by rank.
        world_size: of the job, as most ranks say; never less than its ranks.
        missing: how many ranks more this host has, as the ranks say.
    """

    name: str
    names: tuple[str, ...]
    uid: int
    ranks: tuple[RankProcess, ...]
    world_size: int
    missing: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A process that has a rank's environment and is not taken for a rank.

    Args:
        process: it; reason: why, in a few words.
        is_doubtful: it may be a rank all the same.
    """

    process: Seen
    reason: str
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class FoundRanks:
    """All that is known of ranks on this host.

    Args:
        jobs: by name.
        left_out: by pid.
        unread: Python processes, and late ones, whose environment could not be read.
    """

    jobs: tuple[JobRanks, ...]
    left_out: tuple[LeftOut, ...]
    unread: tuple[Seen, ...]


@dataclass(slots=True)
class _Tree:
    """A process and all below it that say the same of themselves.

    Args:
        top: the highest; claim: what they say; members: the nearest to the top first.
    """

    top: Seen
    claim: RankClaim
    members: list[Seen]


def find_ranks(
    processes: Sequence[Seen], claims: Mapping[int, RankClaim], own_pid: int
) -> FoundRanks:
    """Which processes are the ranks of which jobs.

    Args:
        processes: of this host.
        claims: by pid.
        own_pid: the process that asks; it is no rank.
    """
    by_pid = {each.pid: each for each in processes}
    above = {pid: list(_above(pid, by_pid)) for pid in by_pid}
    asked = {pid: claim for pid, claim in claims.items() if pid in by_pid and pid != own_pid}
    left_out: list[LeftOut] = []
    launchers = {
        higher
        for pid, claim in asked.items()
        for higher in above[pid]
        if higher in asked and asked[higher].launcher < claim.launcher
    }
    for pid in launchers:
        left_out.append(LeftOut(by_pid[pid], "started the ranks"))
        del asked[pid]
    jobs: dict[tuple[object, ...], list[tuple[_Tree, RankProcess]]] = defaultdict(list)
    for tree in _trees(by_pid, asked, above):
        chosen = _rank_of(tree, above)
        if isinstance(chosen, LeftOut):
            left_out.append(chosen)
        else:
            jobs[_job_of(tree)].append((tree, chosen))
    made = [_job(rows, left_out) for rows in jobs.values()]
    unread = [
        each
        for each in processes
        if each.problem and (each.problem != DENIED or each.comm.startswith(("python", "pt_")))
    ]
    return FoundRanks(
        tuple(sorted(_with_own_names(made), key=lambda job: job.name)),
        tuple(sorted(left_out, key=lambda each: each.process.pid)),
        tuple(unread),
    )


def _above(pid: int, by_pid: Mapping[int, Seen]) -> Iterator[int]:
    """Its parent, the parent's and so on; each once: a pid may be used again between two looks."""
    passed = {pid}
    at = by_pid[pid].parent
    while at in by_pid and at not in passed:
        yield at
        passed.add(at)
        at = by_pid[at].parent


def _identity(seen: Seen, claim: RankClaim) -> tuple[object, ...]:
    return seen.uid, claim.launcher, claim.job, claim.rank


def _trees(
    by_pid: Mapping[int, Seen],
    claims: Mapping[int, RankClaim],
    above: Mapping[int, Sequence[int]],
) -> list[_Tree]:
    trees: dict[int, _Tree] = {}
    for pid in sorted(claims, key=lambda pid: (len(above[pid]), pid)):
        seen, claim = by_pid[pid], claims[pid]
        mine = _identity(seen, claim)
        top = pid
        for higher in above[pid]:
            if higher in claims and _identity(by_pid[higher], claims[higher]) == mine:
                top = higher
        trees.setdefault(top, _Tree(by_pid[top], claims[top], [])).members.append(seen)
    return list(trees.values())


def _rank_of(tree: _Tree, above: Mapping[int, Sequence[int]]) -> RankProcess | LeftOut:
    """The rank of a tree; why there is none."""
    programs = [each for each in tree.members if not each.comm.startswith(_TORCH_LOADER)]
    programs = [each for each in programs if each.comm != _STANDBY]
    pythons = [each for each in programs if each.is_python]
    if not pythons:
        others = [each for each in programs if each.program and each.program not in _WRAPPERS]
        if not programs:
            return LeftOut(tree.top, "a helper of a rank that is not there")
        if not others or tree.claim.launcher >= Launcher.TORCH:
            return LeftOut(tree.top, "no Python process has its rank")
        pythons = others
    chosen = _highest(pythons, above)
    while (inner := _wrapped(chosen, pythons, above)) is not None:
        chosen = inner
    helpers = sum(chosen.pid in above[each.pid] for each in tree.members)
    return RankProcess(tree.claim, chosen, helpers)


def _highest(programs: Sequence[Seen], above: Mapping[int, Sequence[int]]) -> Seen:
    """Of several at the same height, beside each other, the one that torch names, or the first."""
    return min(
        programs,
        key=lambda each: (
            len(above[each.pid]),
            each.comm != _TORCH_MAIN,
            each.start_ticks,
            each.pid,
        ),
    )


def _wrapped(
    chosen: Seen, programs: Sequence[Seen], above: Mapping[int, Sequence[int]]
) -> Seen | None:
    """The command that a process such as `conda run python train.py` was told to run."""
    below = [each for each in programs if chosen.pid in above[each.pid]]
    inner = [each for each in below if _runs(chosen, each)]
    return _highest(inner, above) if inner else None


def _runs(outer: Seen, inner: Seen) -> bool:
    """The command line of one ends with that of the other, or relkit's hook begins below it."""
    if "RELKIT_HOOK_DIR" in inner.environ and "RELKIT_HOOK_DIR" not in outer.environ:
        return True
    start = len(outer.words) - len(inner.words)
    if start < 1 or len(inner.words) < 2:
        return False
    same_program = PurePath(outer.words[start]).name == PurePath(inner.words[0]).name
    return same_program and outer.words[start + 1 :] == inner.words[1:]


def _job_of(tree: _Tree) -> tuple[object, ...]:
    """Where nothing else does, the process that started the ranks tells jobs apart."""
    return tree.top.uid, tree.claim.launcher, tree.claim.job or tree.top.parent


def _job(rows: Sequence[tuple[_Tree, RankProcess]], left_out: list[LeftOut]) -> JobRanks:
    """The job of these ranks; of several that say they are the same one, one is taken."""
    parents = Counter(tree.top.parent for tree, _ in rows)
    orphans = parents.pop(_INIT, 0)
    usual, count = parents.most_common(1)[0] if parents else (0, 0)
    taken: dict[int, RankProcess] = {}
    order = sorted(
        rows,
        key=lambda row: (
            row[0].top.parent != usual,
            -row[1].claim.attempt,
            row[1].process.start_ticks,
            row[1].process.pid,
        ),
    )
    for tree, rank in order:
        number = rank.claim.rank
        if tree.top.parent == _INIT and orphans < count:
            left_out.append(LeftOut(rank.process, "its parent has ended, other ranks' lives", True))
        elif number in taken:
            reason = f"says it is rank {number}, as pid {taken[number].process.pid} does"
            left_out.append(LeftOut(rank.process, reason, True))
        else:
            taken[number] = rank
    ranks = [taken[number] for number in sorted(taken)]
    worlds = Counter(rank.claim.world_size for rank in ranks)
    here = max((rank.claim.here for rank in ranks), default=0)
    first = ranks[0]
    return JobRanks(
        first.claim.names[0],
        tuple(dict.fromkeys(name for rank in ranks for name in rank.claim.names)),
        first.process.uid,
        tuple(ranks),
        max(worlds.most_common(1)[0][0], ranks[-1].claim.rank + 1),
        max(0, here - len(ranks)),
    )


def _with_own_names(jobs: Sequence[JobRanks]) -> list[JobRanks]:
    """Several jobs of one name get the pid of their first rank behind it."""
    count = Counter(job.name for job in jobs)
    return [
        job
        if count[job.name] == 1
        else replace(job, name=f"{job.name[:80]}-{job.ranks[0].process.pid}")
        for job in jobs
    ]
