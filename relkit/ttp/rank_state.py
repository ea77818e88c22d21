"""What the training thread and the control thread of a rank share."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, replace

from relkit.ttp.messages import Commit, Discard, Exit, Finished, Save
from relkit.ttp.plan import Survivor

Order = Save | Commit | Discard | Exit | Finished


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
    """One rank's place between its training loop and its processor.

    The trainer's methods cost an assignment each and take no lock; those for orders do.

    Args:
        rank: global rank.
        step: committed step that the run starts from.
    """

    def __init__(self, rank: int, step: int) -> None:
        self.rank = rank
        self.progress = RankProgress(step)
        self.fault = False
        self.pause_at: int | None = None
        self.step_s = 0.0
        self.gone = False
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._broken = ""
        self._lock = threading.Lock()
        self._parked = False
        self._pending = 0
        self._idle = threading.Event()
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
        """The training loop was left; from here on this thread only carries out orders.

        Args:
            error: what ended it: TrainingInterrupted where it was asked to leave, None where the
                loop came to its end.
        """
        if self.progress.updating:
            name = type(error).__name__ if error is not None else "the loop's end"
            self.broken(f"{name} in the update")
        phase = "done" if error is None else "parked"
        self.progress = replace(self.progress, phase=phase)
        with self._lock:
            self._parked = True
            self._settle()

    def unpark(self) -> None:
        """All ranks have finished: this thread goes on with the user's program."""
        with self._lock:
            self._parked = False
            self._idle.clear()

    def give(self, order: Order) -> None:
        """Hand the parked thread an order; it is not idle until that is done."""
        with self._lock:
            self._pending += 1
            self._idle.clear()
            self._orders.put(order)

    def next_order(self) -> Order:
        """The parked thread waits for an order; it must call `done` after it."""
        return self._orders.get()

    def done(self) -> None:
        """The order is done."""
        with self._lock:
            self._pending -= 1
            self._settle()

    def _settle(self) -> None:
        if self._parked and not self._pending:
            self._idle.set()

    @property
    def parked(self) -> bool:
        """The training loop was left."""
        return self._parked

    @property
    def is_idle(self) -> bool:
        """Parked, and no order is being carried out."""
        return self._idle.is_set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the thread is parked and idle."""
        return self._idle.wait(timeout_s)

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
