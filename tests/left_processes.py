"""Processes that a test has started and left running."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

_TASKS = Path("/proc/self/task")


def children() -> set[int]:
    """The pids of this process's children.

    The kernel keeps them in a list: to look for them among all processes takes 50 times as long,
    and this is done twice a test.
    """
    pids: set[int] = set()
    for task in _TASKS.iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pids.update(map(int, (task / "children").read_text().split()))
    return pids


def descendants() -> list[psutil.Process]:
    """Children, and theirs."""
    return psutil.Process().children(recursive=True) if children() else []


def end_left(before: set[int], grace_s: float = 5.0) -> list[str]:
    """Kill what a test has left and name it; empty where all has ended by itself.

    Args:
        before: pids of the descendants that were there when it began.
        grace_s: time for those that are about to end.
    """
    left = [process for process in descendants() if not _is_of(before, process)]
    # A child that has just been killed may need a moment to be reaped.
    _, alive = psutil.wait_procs(left, timeout=grace_s)
    names = []
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
            process.kill()
    return names


def _is_of(before: set[int], process: psutil.Process) -> bool:
    """One of these processes, or started by one: a browser for many tests has children at will."""
    try:
        return any(each.pid in before for each in (process, *process.parents()))
    except psutil.NoSuchProcess:
        return True
