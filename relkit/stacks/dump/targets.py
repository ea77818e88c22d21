"""Which processes `relkit stacks dump` looks at: given pids, or the ranks of a job."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from relkit.errors import NoSuchProcess, RelkitError
from relkit.hook.environment import all_job_folders, job_folders
from relkit.hook.model import HookState
from relkit.hook.owner import located
from relkit.hook.reader import name_of, read_state, state_files
from relkit.process import procfs
from relkit.process.identity import ProcessFinder
from relkit.stacks.engines.base import Target
from relkit.text.whole_number import whole_number


def _number(text: str | None) -> int:
    number = whole_number(text)
    return -1 if number is None else number


def recorder_of(pid: int) -> tuple[Path, HookState] | None:
    """The recorder's file of a process and what it says, whichever job it belongs to."""
    finder = ProcessFinder()
    own = procfs.own_number(pid)
    for folder in all_job_folders():
        for path in state_files(folder):
            if (name_of(path) or (0, 0))[0] != own:
                continue
            try:
                state = located(read_state(path), finder)
            except RelkitError:
                continue
            if state and state.pid == pid and procfs.is_same_process(pid, state.start_ticks):
                return path, state
    return None


def _told(
    environment: Mapping[str, str], recorder: tuple[Path, HookState] | None
) -> tuple[int, int]:
    """A process's rank and world size; -1 for each that is not known."""
    if recorder is not None and recorder[1].rank >= 0:
        return recorder[1].rank, recorder[1].world_size
    return _number(environment.get("RANK")), _number(environment.get("WORLD_SIZE"))


def targets_of_pids(pids: Sequence[int]) -> tuple[Target, ...]:
    """Targets for processes that somebody named.

    Their ranks come from their recorders, else from RANK and WORLD_SIZE in the environment that
    they were started with, which of a warm standby is that of the worker before it. Where ranks are
    missing or clash, the processes are numbered in the order given. Warm standbys that still wait
    are left out, unless nothing else was named: `pgrep -f train.py` lists them, too.

    Raises:
        NoSuchProcess: none of them exists.
    """
    unique = tuple(dict.fromkeys(pids))
    if not any(procfs.is_same_process(pid, 0) for pid in unique):
        named = ", ".join(str(pid) for pid in unique)
        raise NoSuchProcess(f"no such process: {named}")
    unique = tuple(pid for pid in unique if not procfs.is_standby(pid)) or unique
    recorders = [recorder_of(pid) for pid in unique]
    told = [
        _told(procfs.rank_environment(pid), recorder)
        for pid, recorder in zip(unique, recorders, strict=True)
    ]
    ranks, worlds = [rank for rank, _ in told], [size for _, size in told]
    world = max(worlds)
    if -1 in ranks or len(set(ranks)) < len(ranks) or len(set(worlds)) > 1 or max(ranks) >= world:
        ranks, world = list(range(len(unique))), len(unique)
    host = socket.gethostname()
    targets = []
    for pid, rank, recorder in zip(unique, ranks, recorders, strict=True):
        path = recorder[0] if recorder else None
        job_id = path.parent.name if path else ""
        targets.append(Target(pid, rank, world, host, job_id, path, procfs.start_ticks(pid)))
    return tuple(targets)


def _preference(state: HookState, pids: frozenset[int]) -> tuple[bool, bool, int]:
    """Smallest = the rank itself, not its loader's helpers, nor its run before a restart."""
    alive = procfs.is_same_process(state.pid, state.start_ticks)
    helper = procfs.parent(state.pid) in pids
    return (not alive, helper, state.start_ticks if alive else -state.start_ticks)


def targets_of_job(job_id: str) -> tuple[Target, ...]:
    """The ranks of a job that runs on this host under the hook.

    Raises:
        NoSuchProcess: no rank of that job has left a recorder's file here.
    """
    states: list[tuple[HookState, Path]] = []
    files = [path for folder in job_folders(job_id) for path in state_files(folder)]
    finder = ProcessFinder()
    for path in files:
        try:
            state = located(read_state(path), finder)
        except RelkitError:
            continue  # A file cut short by a crash at its making; the other ranks still count.
        if state is not None:
            states.append((state, path))
    if not states:
        raise NoSuchProcess(
            f"no rank of job {job_id!r} runs under the hook on this host",
            next_step="Name the processes with --pid; the job's id is RELKIT_HOOK_DIR's last part.",
        )
    pids = frozenset(state.pid for state, _ in states)
    chosen: dict[int, tuple[HookState, Path]] = {}
    for state, path in sorted(states, key=lambda item: _preference(item[0], pids)):
        chosen.setdefault(state.rank, (state, path))
    host = socket.gethostname()
    world = max(state.world_size for state, _ in states)
    return tuple(
        Target(state.pid, max(rank, 0), max(world, 1), host, job_id, path, state.start_ticks)
        for rank, (state, path) in sorted(chosen.items())
        if rank >= 0 or len(chosen) == 1
    )
