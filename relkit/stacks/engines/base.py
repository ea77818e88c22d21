"""What every stack engine takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relkit.stacks.model import ThreadStack


@dataclass(frozen=True, slots=True)
class Target:
    """One process whose stacks are wanted.

    Args:
        pid: process id on this host.
        rank: global rank; world_size: ranks in the job (1 for a process that is no rank).
        host: host name, as it goes into the dump.
        job_id: the run, "" where there is none.
        hook_file: the recorder's shared-memory file; None where the hook is not loaded.
        start_ticks: start time of the process as /proc has it, so that a reused pid is not
            taken for it; 0 = do not check.
    """

    pid: int
    rank: int
    world_size: int
    host: str
    job_id: str
    hook_file: Path | None = None
    start_ticks: int = 0


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What one engine saw.

    Args:
        engine: its name, as it goes into RankDump.engines.
        threads: the stacks; empty where it could not look.
        notes: what is missing or inexact and why, one sentence each.
        freeze_s: the longest time that one thread of the target was held, s; 0 where the
            engine stops nothing or cannot tell.
    """

    engine: str
    threads: tuple[ThreadStack, ...] = ()
    notes: tuple[str, ...] = ()
    freeze_s: float = 0.0
