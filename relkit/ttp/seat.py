"""What the training thread and the processor thread of a rank share."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, replace

from relkit.ttp.messages import Commit, Discard, Dump, Exit
from relkit.ttp.plan import Survivor

Order = Dump | Commit | Discard | Exit


class Parked(BaseException):
    """The training loop is to be left: the job has a fault, or was asked to stop.

    Not an Exception, so that a user's `except Exception` around a step does not swallow it.
    """


@dataclass(frozen=True, slots=True)
class Standing:
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


class Seat:
    """One rank's place between its training loop and its processor.

    The trainer's methods cost an assignment each and take no lock.

    Args:
        rank: global rank.
        step: committed step that the run starts from.
    """

    def __init__(self, rank: int, step: int) -> None:
        self.rank = rank
        self.standing = Standing(step)
        self.fault = False
        self.pause_at: int | None = None
        self.step_s = 0.0
        self.gone = False
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._broken = ""
        self._idle = threading.Event()
        self._committed_s = time.monotonic()

    def phase(self, name: str) -> None:
        """The trainer begins a phase.

        Raises:
            Parked: there is a fault.
        """
        if self.fault:
            raise Parked
        self.standing = replace(self.standing, phase=name)

    def gradients_ready(self) -> None:
        """All reductions of the step are done: this rank can make the step alone from here on."""
        self.standing = replace(self.standing, phase="ready", ready=True)

    def begin_update(self, *, previous: bool = False) -> None:
        """The update begins; nothing in it may communicate.

        Args:
            previous: the shard has been copied, so that the step before stays available.

        Raises:
            Parked: there is a fault.
        """
        if self.fault:
            raise Parked
        self.standing = replace(self.standing, phase="update", updating=True, previous=previous)

    def end_update(self, step: int) -> None:
        """The update is done: `step` is committed."""
        self.standing = Standing(step, "committed", previous=self.standing.previous)
        now_s = time.monotonic()
        self.step_s, self._committed_s = now_s - self._committed_s, now_s
        if self.pause_at is not None and step >= self.pause_at:
            raise Parked

    def park(self, error: BaseException | None) -> None:
        """The training loop was left; from here on this thread only carries out orders."""
        if self.standing.updating and not isinstance(error, Parked):
            self._broken = f"{type(error).__name__} in the update" if error else "left the update"
        self.standing = replace(self.standing, phase="parked")
        self._idle.set()

    def give(self, order: Order) -> None:
        """Hand the parked thread an order; it is not idle from here on."""
        self._idle.clear()
        self.orders.put(order)

    def rolled_forward(self, step: int) -> None:
        """The parked thread has made the step that it was behind, or gone back to `step`."""
        self.standing = Standing(step, "parked")

    def idle(self) -> None:
        """The order is done."""
        if self.orders.empty():
            self._idle.set()

    @property
    def is_idle(self) -> bool:
        """Parked, and no order is being carried out."""
        return self._idle.is_set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the thread is parked and idle."""
        return self._idle.wait(timeout_s)

    def survivor(self) -> Survivor:
        """What this rank can give; meant to be asked when it is idle."""
        standing = self.standing
        return Survivor(
            self.rank,
            standing.step,
            ready=standing.ready,
            previous=standing.previous,
            usable=not self._broken,
            reason=self._broken,
        )
