"""What the launcher's agent tells of a job's course: phases, and what began or ended them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.settings import ExitStatus


class Phase(str, Enum):
    """What takes time between a fault and the next start of workers."""

    CAPTURE = "capture"
    SAVE = "save"
    STOP = "stop"
    RENDEZVOUS = "rendezvous"


class LookEnd(Enum):
    """How a look at the workers has ended."""

    WORKS = "works"
    FAILED = "failed"
    RESTARTS = "restarts"
    ABORTED = "aborted"
    BROKEN = "broken"


class PhaseListener:
    """Is told of phases; each call does nothing here. None may raise, or take long."""

    def job_begins(self, job_id: str) -> None:
        """The launcher begins its run."""

    def job_ended(self, how: str, why: str) -> None:
        """It has ended it.

        Args:
            how: succeeded, failed, or ended: it was asked to.
            why: in words; "" where it has succeeded.
        """

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """Around a phase."""
        return nullcontext()

    def starts(self) -> None:
        """Workers are about to be started."""

    def started(self, attempt: Attempt) -> None:
        """They are."""

    def saved(self, step: int, by: str) -> None:
        """A step was saved because of a fault.

        Args:
            by: what has it: memory, or try-to-persist.
        """

    def look_begins(self) -> None:
        """The workers are looked at, several times a second."""

    def look_ended(self, end: LookEnd, ends: Mapping[int, ExitStatus], *, is_led: bool) -> None:
        """They were.

        Args:
            ends: how workers of this node have ended, by rank.
            is_led: a service led them meanwhile, or has led them to their end.
        """

    def failed(self, sentence: str, ends: Mapping[int, ExitStatus]) -> None:
        """A worker of this node has failed; its peers will be captured, and stopped."""

    def captured(self) -> None:
        """They are captured."""

    def meets_again(self) -> None:
        """Workers are about to be stopped; unless a fault was told before, as nodes meet again."""

    def shuts_down(self, ended_by: BaseException | None, signal_name: str) -> None:
        """The workers are about to be signalled.

        Args:
            ended_by: what ends the launcher; None where it goes on, or the job is done.
            signal_name: of what ends it, or what workers get.
        """
