"""Capture the stacks of several ranks of this host at once; every rank yields a dump."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from relkit.errors import RelkitError
from relkit.hook.locate import LIBRARY as HOOK
from relkit.hook.model import HookState
from relkit.process import procfs
from relkit.process.interruptible_wait import next_of
from relkit.stacks.engines.base import EngineResult, Target
from relkit.stacks.engines.hook_engine import HookEngine, hook_state
from relkit.stacks.engines.pyspy import PySpyEngine
from relkit.stacks.engines.pyspy_native import PySpyNativeEngine
from relkit.stacks.engines.tracing import why_not
from relkit.stacks.model import RankDump, Role, ThreadStack
from relkit.stacks.roles import role_of

_WORKERS = 16
_HOOK_TIMEOUT_S = 0.5
# What is left over from the deadline for naming addresses and building the dumps.
_RESERVE_S = 0.2
_SHORTEST_S = 0.05


@dataclass(slots=True)
class _Work:
    """What is known of one target so far; filled by one worker thread, read after it is done."""

    target: Target
    state: str = procfs.GONE
    facts: dict[int, procfs.ThreadFacts] = field(default_factory=dict)
    hook_json: str = ""
    results: list[EngineResult] = field(default_factory=list)
    python: tuple[ThreadStack, ...] = ()
    native: tuple[ThreadStack, ...] = ()
    notes: list[str] = field(default_factory=list)
    captured_unix_ns: int = 0
    done: bool = False


def _with_facts(work: _Work, threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The stacks with role, state and kernel function filled in from /proc."""
    pid, filled = work.target.pid, []
    for thread in threads:
        # Old interpreters do not keep the kernel's id, but the main thread's is the pid.
        number = thread.os_thread_id or (pid if thread.name == "MainThread" else 0)
        seen = work.facts.get(number)
        named = thread.name or (seen.comm if seen else "")
        filled.append(
            replace(
                thread,
                os_thread_id=number,
                name=named,
                role=role_of(named, thread.frames, number == pid),
                # Before the capture: answering it makes any thread look as if it ran.
                state=seen.state if seen else thread.state,
                kernel=seen.wchan if seen else "",
            )
        )
    # The main thread first, then in order of creation: the same order on every rank.
    return tuple(sorted(filled, key=lambda t: (t.role is not Role.MAIN, t.os_thread_id)))


def _recorder(work: _Work) -> HookState | None:
    """The recorder's state, kept in the dump; it is there for a dead process, too."""
    state = hook_state(work.target)
    if state is not None:
        work.hook_json = json.dumps(state.to_json(), separators=(",", ":"))
    return state


def _look_with_hook(work: _Work, deadline: float, alive: bool) -> None:
    try:
        state = _recorder(work)
        if state is None or not alive:
            return
        timeout_s = min(_HOOK_TIMEOUT_S, max(_SHORTEST_S, deadline - time.monotonic()))
        result = HookEngine().native(work.target, timeout_s)
    except (RelkitError, OSError) as error:
        work.notes.append(str(error))
        return
    _keep_native(work, result)


def _without_hook(thread: ThreadStack) -> ThreadStack:
    """The stack as it would be without the hook, whose wrappers stand around hooked calls."""
    frames = tuple(f for f in thread.frames if f.source.rpartition("/")[2] != HOOK)
    # A stack of nothing else is the hook's own, and no other frame could tell where it is.
    return replace(thread, frames=frames) if frames else thread


def _keep_native(work: _Work, result: EngineResult) -> None:
    work.native = tuple(_without_hook(thread) for thread in result.threads)
    work.notes += result.notes
    if result.threads:
        work.results.append(result)


def _look_with_pyspy(work: _Work, deadline: float) -> None:
    try:
        timeout_s = max(_SHORTEST_S, deadline - time.monotonic())
        result = PySpyEngine().python(work.target, timeout_s)
    except (RelkitError, OSError) as error:
        work.notes.append(str(error))
        return
    work.python = result.threads
    work.results.append(result)
    work.notes += result.notes


def _look_without_hook(work: _Work, deadline: float) -> None:
    reason = why_not(work.target.pid)
    if reason:
        work.notes.append(f"no native stacks: {reason}")
        return
    engine = PySpyNativeEngine()
    remaining = deadline - time.monotonic()
    if remaining < _SHORTEST_S:
        work.notes.append(f"{engine.name} not used: no time left")
        return
    try:
        result = engine.native(work.target, remaining)
    except (RelkitError, OSError) as error:
        work.notes.append(str(error))
        return
    _keep_native(work, result)


def _capture(work: _Work, deadline: float, native_fallback: bool) -> None:
    target = work.target
    work.captured_unix_ns = time.time_ns()
    if not procfs.is_same_process(target.pid, target.start_ticks):
        work.notes.append(f"process {target.pid} has ended")
        _look_with_hook(work, deadline, alive=False)
        return
    work.state = procfs.process_state(target.pid)
    work.facts = {facts.os_thread_id: facts for facts in procfs.threads(target.pid)}
    _look_with_hook(work, deadline, alive=True)
    _look_with_pyspy(work, deadline)
    if native_fallback and not work.native:
        _look_without_hook(work, deadline)
    if not procfs.is_same_process(target.pid, target.start_ticks):
        work.notes.append(f"process {target.pid} ended while it was being read")


def _finished(work: _Work) -> RankDump:
    target = work.target
    return RankDump(
        rank=target.rank,
        world_size=target.world_size,
        pid=target.pid,
        process_state=work.state,
        native=_with_facts(work, work.native),
        python=_with_facts(work, work.python),
        host=target.host,
        job_id=target.job_id,
        captured_unix_ns=work.captured_unix_ns,
        engines=tuple(result.engine for result in work.results),
        notes=tuple(work.notes),
        hook_json=work.hook_json,
    )


def _late(target: Target, deadline_s: float) -> RankDump:
    return RankDump(
        rank=target.rank,
        world_size=target.world_size,
        pid=target.pid,
        process_state=procfs.process_state(target.pid),
        host=target.host,
        job_id=target.job_id,
        captured_unix_ns=time.time_ns(),
        notes=(f"process {target.pid} could not be read within {deadline_s:.1f} s",),
    )


def capture_ranks(
    targets: Sequence[Target],
    *,
    deadline_s: float,
    native_fallback: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RankDump, ...]:
    """Stacks of all targets, in their order, captured in parallel.

    Every target yields a dump; what could not be read and why is in its notes. A process that
    is gone has process_state "gone". No target is left stopped, whatever happens here.

    Args:
        targets: processes of this host.
        deadline_s: time for all of them together, s.
        native_fallback: where the hook gives no native stacks, use py-spy --native, which stops
            the process for up to a second (never one that is stopped or in uninterruptible sleep).
        progress: called with (ranks done, ranks in all), from this thread.
    """
    deadline = time.monotonic() + deadline_s
    works = [_Work(target) for target in targets]
    waiting: SimpleQueue[_Work] = SimpleQueue()
    finished: SimpleQueue[_Work] = SimpleQueue()
    for work in works:
        waiting.put(work)

    def serve() -> None:
        while True:
            try:
                work = waiting.get_nowait()
            except Empty:
                return
            try:
                _capture(work, deadline - min(_RESERVE_S, deadline_s / 4), native_fallback)
            finally:
                finished.put(work)

    # Daemon threads: one that hangs in the kernel must not keep the caller from ending.
    for number in range(min(_WORKERS, len(works))):
        threading.Thread(target=serve, name=f"relkit-capture-{number}", daemon=True).start()
    for count in range(len(works)):
        try:
            next_of(finished, deadline - time.monotonic()).done = True
        except Empty:
            break
        if progress is not None:
            progress(count + 1, len(works))
    return tuple(_finished(work) if work.done else _late(work.target, deadline_s) for work in works)
