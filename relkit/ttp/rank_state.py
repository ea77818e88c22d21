"""What the training thread and the control thread of a rank share."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from relkit.ttp.command_queue import CommandQueue
from relkit.ttp.plan import Survivor


class TrainingInterrupted(BaseException):
    """The training loop is to be left: the job has a fault, or was asked to stop.

    Not an Exception, so that a user's `except Exception` around a step does not swallow it.
    """


@dataclass(frozen=True, slots=True)
class RankProgress:
    """Where a rank stands; replaced as a whole, so that another thread never sees half of it.

    Args:
        step: committed step.
        phase: what the trainer does, for people.
        ready: all gradients of the next step are reduced, and what the update needs is known.
        updating: inside the update; data is of no step.
        previous: the state of the step before is kept too.
    """

    step: int
    phase: str = "start"
    ready: bool = False
    updating: bool = False
    previous: bool = False


class RankState:
    """What the training loop of a rank says of itself, and what is asked of it.

    The methods that a step calls cost an assignment each and take no lock.

    Args:
        rank: global rank.
        step: committed step that the run starts from.

    Attributes:
        fault: the loop is to be left at once; pause_at: before it makes more steps than these.
        step_s: how long the last step took, seconds.
        gone: this process is about to end.
    """

    def __init__(self, rank: int, step: int) -> None:
        self.rank = rank
        self.progress = RankProgress(step)
        self.fault = False
        self.pause_at: int | None = None
        self.step_s = 0.0
        self.gone = False
        self.commands = CommandQueue()
        self._broken = ""
        self._committed_s = time.monotonic()

    def phase(self, name: str) -> None:
        """The trainer begins a phase; "forward" is the first of a step.

        Raises:
            TrainingInterrupted: there is a fault, or the job was asked to stop before this step.
        """
        self._leave_if_asked()
        if name == "forward":
            self._pause_if_asked()
        self.progress = replace(self.progress, phase=name)

    def gradients_ready(self) -> None:
        """All reductions of the step are done: this rank can make the step alone from here on.

        Raises:
            TrainingInterrupted: there is a fault: what was reduced cannot be relied on, and no rank
                has passed the barrier, which this one has not reached. Or the job was asked to
                stop.
        """
        self._leave_if_asked()
        # For a loop that tells of no phases. Nobody passes the barrier, so nobody is a step on.
        self._pause_if_asked()
        self.progress = replace(self.progress, phase="ready", ready=True)

    def begin_update(self, *, previous: bool = False) -> None:
        """The update begins; nothing in it may communicate.

        Args:
            previous: the shard has been copied, so that the step before stays available.

        Raises:
            TrainingInterrupted: there is a fault.
        """
        self._leave_if_asked()
        self.progress = replace(self.progress, phase="update", updating=True, previous=previous)

    def end_update(self, step: int) -> None:
        """The update is done: `step` is committed."""
        self.progress = RankProgress(step, "committed", previous=self.progress.previous)
        now_s = time.monotonic()
        self.step_s, self._committed_s = now_s - self._committed_s, now_s

    def _leave_if_asked(self) -> None:
        if self.fault:
            raise TrainingInterrupted

    def _pause_if_asked(self) -> None:
        # Not at the end of the step before: its log line is still to be written.
        if self.pause_at is not None and self.progress.step >= self.pause_at:
            raise TrainingInterrupted

    def catching_up(self) -> None:
        """The parked thread begins to make a step, or to go back by one."""
        self.progress = replace(self.progress, updating=True)

    def caught_up(self, step: int) -> None:
        """The parked thread has made the step that it was behind, or gone back to `step`."""
        self.progress = RankProgress(step, "parked")

    def broken(self, reason: str) -> None:
        """The data here is of no step: nobody may save it."""
        self._broken = self._broken or reason

    def park(self, error: BaseException | None) -> None:
        """The training loop was left; from here on this thread only carries out commands.

        Args:
            error: what ended it: TrainingInterrupted where it was asked to leave, None where the
                loop came to its end.
        """
        if self.commands.is_replaced:
            # For ever: the process ends without this thread.
            self.commands.park()
        if self.progress.updating:
            name = type(error).__name__ if error is not None else "the loop's end"
            self.broken(f"{name} in the update")
        phase = "done" if error is None else "parked"
        self.progress = replace(self.progress, phase=phase)
        self.commands.park()

    def replace_thread(self) -> bool:
        """The training thread cannot be got out of its loop: another one carries out commands.

        Returns:
            False where it has left the loop, or is in an update, which it will leave.
        """
        return not self.progress.updating and self.commands.replace_thread()

    def survivor(self) -> Survivor:
        """What this rank can give; meant to be asked when it is idle."""
        progress = self.progress
        return Survivor(
            self.rank,
            progress.step,
            ready=progress.ready,
            previous=progress.previous,
            usable=not self._broken,
            reason=self._broken,
        )
