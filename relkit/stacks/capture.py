"""Capture the stacks of several ranks of this host at once; every rank yields a dump."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from relkit.errors import RelkitError
from relkit.stacks import procfs
from relkit.stacks.engines.base import EngineResult, Target
from relkit.stacks.engines.pyspy import PySpyEngine
from relkit.stacks.model import RankDump, Role, ThreadStack
from relkit.stacks.roles import role_of

_WORKERS = 8


def _with_facts(
    threads: Sequence[ThreadStack], facts: dict[int, procfs.ThreadFacts], pid: int
) -> tuple[ThreadStack, ...]:
    """The stacks with role, state and kernel function filled in from /proc."""
    filled = []
    for thread in threads:
        seen = facts.get(thread.os_thread_id)
        named = thread.name or (seen.comm if seen else "")
        filled.append(
            replace(
                thread,
                name=named,
                role=role_of(named, thread.frames, thread.os_thread_id == pid),
                state=thread.state or (seen.state if seen else ""),
                kernel=seen.wchan if seen else "",
            )
        )
    # The main thread first, then in order of creation: the same order on every rank.
    return tuple(sorted(filled, key=lambda t: (t.role is not Role.MAIN, t.os_thread_id)))


def _capture(target: Target, timeout_s: float) -> RankDump:
    notes: list[str] = []
    results: list[EngineResult] = []
    dump = RankDump(
        rank=target.rank,
        world_size=target.world_size,
        pid=target.pid,
        process_state=procfs.GONE,
        host=target.host,
        job_id=target.job_id,
        captured_unix_ns=time.time_ns(),
    )
    if not procfs.is_same_process(target.pid, target.start_ticks):
        return replace(dump, notes=(f"process {target.pid} has ended",))
    facts = {facts.os_thread_id: facts for facts in procfs.threads(target.pid)}
    state = procfs.process_state(target.pid)
    try:
        python = PySpyEngine().python(target, timeout_s)
        results.append(python)
        notes += python.notes
    except RelkitError as error:
        python = EngineResult("py-spy")
        notes.append(str(error))
    return replace(
        dump,
        process_state=state,
        python=_with_facts(python.threads, facts, target.pid),
        engines=tuple(result.engine for result in results),
        notes=tuple(notes),
    )


def capture_ranks(targets: Sequence[Target], *, deadline_s: float) -> tuple[RankDump, ...]:
    """Stacks of all targets, in their order, captured in parallel.

    Args:
        targets: processes of this host.
        deadline_s: time for all of them together, s; whoever is not done by then yields what
            is known so far, with a note.
    """
    if not targets:
        return ()
    with ThreadPoolExecutor(min(_WORKERS, len(targets)), "relkit-capture") as pool:
        return tuple(pool.map(lambda target: _capture(target, deadline_s), targets))
