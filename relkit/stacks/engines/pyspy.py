"""Python stacks by py-spy without ever stopping the target."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from relkit.errors import CaptureFailed
from relkit.process import procfs
from relkit.process.bounded_child import find_tool, run_child
from relkit.stacks.engines.base import EngineResult, Target
from relkit.stacks.engines.pyspy_json import parse
from relkit.stacks.engines.refusal import explain, is_final
from relkit.stacks.engines.tracing import run_guarded
from relkit.stacks.model import ThreadStack

_READS = 4
_SHORTEST_S = 0.05
_Moves = Mapping[int, tuple[str, int]]


def pyspy_path() -> str:
    """The py-spy program.

    Raises:
        CaptureFailed: it is not installed.
    """
    path = find_tool("py-spy")
    if path is None:
        raise CaptureFailed("py-spy is not installed", next_step="pip install py-spy")
    return path


def _stood_still(os_thread_id: int, before: _Moves, after: _Moves) -> bool:
    seen = before.get(os_thread_id)
    return seen is not None and seen[0] != "R" and seen == after.get(os_thread_id)


class PySpyEngine:
    """`py-spy dump --nonblocking`: memory reads only, so it is safe in every state of the target.

    A read of a thread that runs meanwhile may be torn. A thread counts as read when the kernel
    did not switch it in between (it slept all the time), or when two reads in a row agree.
    """

    name = "py-spy"

    def _read(self, target: Target, timeout_s: float) -> tuple[ThreadStack, ...]:
        argv = [pyspy_path(), "dump", "--nonblocking", "--json", "--pid", str(target.pid)]
        try:
            result = run_child(argv, timeout_s)
        except OSError as error:
            raise CaptureFailed(f"py-spy cannot be started: {error.strerror}") from error
        if result.timed_out:
            raise CaptureFailed(f"py-spy: no answer within {timeout_s:.1f} s")
        if result.returncode != 0:
            raise CaptureFailed(explain("py-spy", target.pid, result.stderr))
        return self._threads(target, result.stdout)

    def _read_stopped(self, target: Target, timeout_s: float) -> EngineResult:
        """With the process stopped for some milliseconds, where it never holds still enough."""
        argv = [pyspy_path(), "dump", "--json", "--pid", str(target.pid)]
        result = run_guarded("py-spy (blocking)", target.pid, argv, timeout_s)
        note = "py-spy: could not read the running process, so it was stopped while being read"
        return EngineResult(self.name, self._threads(target, result.stdout), (note,))

    def _threads(self, target: Target, output: bytes) -> tuple[ThreadStack, ...]:
        threads = []
        for thread, frames in parse(output):
            # A program that never imports threading has no names; its only thread is the main one.
            default = "MainThread" if thread.os_thread_id == target.pid else ""
            stack = tuple(item.frame for item in frames)
            threads.append(replace(thread, name=thread.name or default, frames=stack))
        return tuple(threads)

    def python(self, target: Target, timeout_s: float) -> EngineResult:
        """Python stacks of all Python threads; the target never stops.

        Args:
            target: the process.
            timeout_s: budget for all reads together, s.

        Raises:
            CaptureFailed: no read succeeded; the message says why.
        """
        deadline = time.monotonic() + timeout_s
        sure: dict[int, ThreadStack] = {}
        last: tuple[ThreadStack, ...] = ()
        failure: CaptureFailed | None = None
        before = procfs.moves(target.pid)
        for _ in range(_READS):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            try:
                threads = self._read(target, remaining)
            except CaptureFailed as error:
                failure = error
                if is_final(str(error)):
                    break
                before = procfs.moves(target.pid)
                continue
            after = procfs.moves(target.pid)
            known = {thread.os_thread_id: thread.frames for thread in last}
            for thread in threads:
                twice = known.get(thread.os_thread_id) == thread.frames
                if twice or _stood_still(thread.os_thread_id, before, after):
                    sure[thread.os_thread_id] = thread
            before, last = after, threads
            if all(thread.os_thread_id in sure for thread in threads):
                break
        if not last:
            failure = failure or CaptureFailed(f"py-spy: no answer within {timeout_s:.1f} s")
            remaining = deadline - time.monotonic()
            if is_final(str(failure)) or remaining < _SHORTEST_S:
                raise failure
            return self._read_stopped(target, remaining)
        unsure = [thread.name or "?" for thread in last if thread.os_thread_id not in sure]
        notes: tuple[str, ...] = ()
        if unsure:
            names = ", ".join(sorted(set(unsure))[:5])
            notes = (f"py-spy: {names} ran while being read: that stack may be inexact",)
        stacks = tuple(sure.get(thread.os_thread_id, thread) for thread in last)
        return EngineResult(self.name, stacks, notes)
