"""What the ranks of a job had done when it ended, written down by themselves as they did it.

A rank's commits, and steps that it could have made alone, are appended to a file by the calls that
its loop makes of `RankState`: no answer of try-to-persist has a part in it. So a test knows which
step a fault must leave behind without asking the code that decides it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.ttp.rank_state import RankState

_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a rank stands.

    Args:
        step: the last step that it has committed.
        ready: the last step whose gradients it has reduced; 0 for none in this attempt.
        kept: it keeps the state of the step before as well.
    """

    step: int
    ready: int = 0
    kept: bool = False

    def can_give(self, step: int) -> bool:
        """Whether the rank has that step, can make it alone, or can go back to it."""
        makes = self.step + 1 == step and self.ready == step
        return self.step == step or makes or (self.step - 1 == step and self.kept)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A rank that does not begin a step's update before it is told of a fault.

    Args:
        rank: the one; step: that it has all gradients of.
        victim: killed once all but `rank` have committed the step.
    """

    rank: int
    step: int
    victim: int


def witnessed(train: Callable[[], int], notes: Path, behind: LeftBehind | None = None) -> int:
    """Train in this process, a rank of its own, and write down what it does.

    Args:
        train: the training; notes: the file; behind: see LeftBehind.
    """
    rank = int(os.environ["RANK"])
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ready, begin, end = RankState.gradients_ready, RankState.begin_update, RankState.end_update

    def note(what: str, step: int) -> None:
        os.write(file, f"{rank} {what} {step}\n".encode())

    def gradients_ready(state: RankState) -> None:
        ready(state)
        note("ready", state.progress.step + 1)

    def begin_update(state: RankState, *, previous: bool = False) -> None:
        step = state.progress.step + 1
        if behind is not None and (rank, step) == (behind.rank, behind.step):
            while not state.fault:
                time.sleep(_POLL_S)
        begin(state, previous=previous)
        if previous:
            note("kept", step - 1)

    def end_update(state: RankState, step: int) -> None:
        end(state, step)
        note("committed", step)

    for name, call in (
        ("gradients_ready", gradients_ready),
        ("begin_update", begin_update),
        ("end_update", end_update),
    ):
        setattr(RankState, name, call)
    return train()


def read(notes: Path, ranks: int, before: int) -> list[Seen]:
    """What each rank had done.

    Args:
        notes: the file; ranks: how many; before: the step that they began with.
    """
    seen = [Seen(before)] * ranks
    for line in notes.read_text(encoding="ascii").splitlines() if notes.exists() else ():
        number, what, step = line.split(" ")
        rank = int(number)
        if what == "ready":
            seen[rank] = replace(seen[rank], ready=int(step))
        elif what == "kept":
            seen[rank] = replace(seen[rank], kept=True)
        else:
            seen[rank] = replace(seen[rank], step=int(step))
    return seen


class KillOnCommit:
    """Kills the victim of a LeftBehind; for `run_ranks`' `meanwhile`.

    Attributes:
        at_s: when, seconds since the epoch; 0.0: it has not.
    """

    def __init__(self, behind: LeftBehind, notes: Path, ranks: Collection[int]) -> None:
        self.at_s = 0.0
        self._behind, self._notes = behind, notes
        self._lines = {f"{r} committed {behind.step}" for r in ranks if r != behind.rank}

    def __call__(self, pids: Sequence[int]) -> None:
        """See `run_ranks`."""
        pid = pids[self._behind.victim]
        # 0, that of one that has ended by itself, would be this whole process group.
        if self.at_s or not pid or not self._notes.exists():
            return
        if self._lines <= set(self._notes.read_text(encoding="ascii").splitlines()):
            self.at_s = time.time()
            os.kill(pid, signal.SIGKILL)
