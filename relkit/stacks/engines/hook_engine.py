"""Native stacks by the preloaded hook: each thread writes its own, in about a millisecond."""

from __future__ import annotations

from collections import defaultdict

from relkit.errors import CaptureFailed
from relkit.hook.capture import NativeCapture, capture_native
from relkit.hook.model import HookState
from relkit.hook.owner import located
from relkit.hook.reader import read_state
from relkit.process.identity import ProcessFinder
from relkit.ranks import RankSet
from relkit.stacks.engines.base import EngineResult, Target
from relkit.stacks.model import ThreadStack
from relkit.stacks.symbolise import shared

FREEZE_LIMIT_S = 0.005
_finder = ProcessFinder()


def hook_state(target: Target) -> HookState | None:
    """The recorder's state of the target; None where the hook is not loaded.

    Raises:
        CaptureFailed: the file belongs to another process.
        RelkitError: the file is damaged.
    """
    if target.hook_file is None:
        return None
    state = located(read_state(target.hook_file), _finder)
    if (
        state is None
        or state.pid != target.pid
        or (target.start_ticks and state.start_ticks != target.start_ticks)
    ):
        raise CaptureFailed(f"hook: {target.hook_file.name} is not of process {target.pid}")
    return state


class HookEngine:
    """Native stacks through librelkit_hook.so in the target: no ptrace rights, no stop."""

    name = "hook"

    def native(self, target: Target, timeout_s: float) -> EngineResult:
        """Native stacks of all threads that could answer.

        Args:
            target: the process; timeout_s: how long to wait for its threads, s.

        Raises:
            CaptureFailed: the hook is not loaded or cannot capture; the message says why.
            RelkitError: its file is damaged.
        """
        state = hook_state(target)
        if state is None or target.hook_file is None:
            raise CaptureFailed(f"hook: not loaded in process {target.pid}")
        capture = capture_native(target.hook_file, state, timeout_s)
        frames = shared().stacks(
            target.pid, [thread.addresses for thread in capture.threads], target.start_ticks
        )
        threads = tuple(
            ThreadStack(thread.os_thread_id, thread.name, stack, state=thread.state)
            for thread, stack in zip(capture.threads, frames, strict=True)
        )
        return EngineResult(self.name, threads, tuple(_notes(capture)), capture.longest_freeze_s)


def _notes(capture: NativeCapture) -> list[str]:
    by_reason: defaultdict[str, list[int]] = defaultdict(list)
    for os_thread_id, reason in capture.missed:
        by_reason[reason].append(os_thread_id)
    notes = [
        f"hook: no native stack of thread {RankSet.of(ids).fold()}: {reason}"
        for reason, ids in sorted(by_reason.items())
    ]
    cut = [thread.os_thread_id for thread in capture.threads if thread.truncated]
    if cut:
        notes.append(f"hook: stack of thread {RankSet.of(cut).fold()} is cut at its outer end")
    if capture.longest_freeze_s > FREEZE_LIMIT_S:
        notes.append(f"hook: a thread stood still for {capture.longest_freeze_s * 1e3:.1f} ms")
    return notes
