"""What runs beside a job: a service, and what it may ask of the launcher's agent.

The agent knows no feature. It asks its services in the order of their list, at the moments below,
and does with the workers what they answer. A new feature is a class with the two or three calls
that it needs, in a folder of its own, and a row in the list
(`relkit/commands/launch_parts/services.py`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.looks import Looks
from relkit.launch.job.phases import PhaseListener
from relkit.launch.job.settings import JobAborted, Log


class MeetAgain(Exception):
    """The nodes of this rendezvous cannot start workers: they are to meet anew.

    Its text, if it has one, is logged.
    """


class Stop(Enum):
    """Why workers are about to be stopped."""

    MEET_AGAIN = auto()  # they are well: other nodes have come, or gone
    RESTART = auto()  # they have failed or hang, and will be started again
    END = auto()


class WorkerState(Enum):
    """What torch's look at the workers of this node has shown."""

    HEALTHY = auto()
    SUCCEEDED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Hold:
    """The workers are led by the service: nobody else looks until it has been asked again."""


@dataclass(frozen=True, slots=True)
class LookOnly:
    """The workers were led to their end: only torch looks at them now, no other service."""


@dataclass(frozen=True, slots=True)
class Leave:
    """This node leaves the job.

    Args:
        why: what the launcher ends with.
    """

    why: RelkitError


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop all workers, and start them again.

    Args:
        line: for the terminal.
    """

    line: str


@dataclass(frozen=True, slots=True)
class End:
    """End the job.

    Args:
        why: what the launcher ends with.
    """

    why: JobAborted


Action = Hold | LookOnly | Leave | Restart | End


class Job(Protocol):
    """What a service may ask of the agent, over all attempts."""

    log: Log
    looks: Looks
    phases: PhaseListener
    # How often workers may be started again; what a service sets holds from the next attempt on.
    restarts_left: int
    # Given the store by which nodes learn their ranks: the one to use in its place.
    rank_store: Callable[[Any], Any]

    @property
    def restarts(self) -> int:
        """How many there were."""

    @property
    def rendezvous(self) -> Any:  # noqa: ANN401
        """torch's handler."""

    @property
    def rendezvous_calls(self) -> BoundedCalls:
        """Makes calls to that handler, which may not return."""

    @property
    def ended_by(self) -> BaseException | None:
        """What has ended the run; None before, and where it has succeeded."""

    def breaks_off(self, trigger: str) -> None:
        """Have all services keep what would be lost, see Service.breaks_off."""

    def leave_rendezvous(self) -> None:
        """Have the other nodes meet without this one.

        Raises:
            RendezvousError: they have to wait.
        """


class Service:
    """Runs beside the workers of one node; each call does nothing here.

    Most services need `environment`, `workers_started`, `poll` and `before_stop`. There are more
    calls because a job is more than its workers: `nodes_met` can refuse a node before there are
    any, a failure is told before and after its capture (`worker_failed`, `failure_captured`), and
    what can save the job must be asked before what may end it (`takes_over`, then `poll`).

    All calls come from the launcher's main thread, which also handles signals: none may take
    longer than it has to. A service that fails is nothing to the job: what a call raises is logged,
    and the next service is asked. One that fails in `environment` or `workers_started` is asked
    nothing more about those workers but to end: what it knows is of the workers before them. Only
    in `job_begins` and `nodes_met`, before there are workers, an error ends the launcher.
    """

    # This node waits beside a job whose nodes have met.
    waits = False

    def job_begins(self, job: Job) -> None:
        """The launcher begins its run: before the first rendezvous."""

    def nodes_met(self, attempt: Attempt) -> Leave | None:
        """All nodes have met; no worker runs.

        Raises:
            MeetAgain: other nodes leave.
            RelkitError: the job ends, as it cannot go on without the nodes that leave.
        """

    def before_workers(self, attempt: Attempt) -> None:
        """Workers are started next: finish with those before them."""

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """Variables that workers get; whatever they, or their watch, will need is made now."""
        return {}

    def workers_started(self, attempt: Attempt) -> None:
        """They run: `attempt.ranks` has their processes."""

    def worker_ended(self, rank: int, how: str) -> None:
        """A worker of this node has ended, well or not.

        Args:
            how: in a sentence.
        """

    def takes_over(self, attempt: Attempt, failure: str) -> Action | None:
        """Before anything else in a look, several times a second: the first answer counts.

        Args:
            failure: a sentence where a worker of this node has just failed, else "".
        """

    def worker_failed(self, attempt: Attempt, failure: str) -> None:
        """A worker of this node has failed, and its peers have not been stopped yet."""

    def failure_captured(self, attempt: Attempt, failure: str) -> None:
        """All services have been told of it."""

    def poll(self, attempt: Attempt) -> Action | None:
        """Several times a second while workers run; the first answer counts."""

    def looked(self, attempt: Attempt, state: WorkerState) -> Action | None:
        """torch has looked at the workers; the first answer counts."""

    def leaves(self, why: RelkitError) -> None:
        """This node leaves the job; the other nodes have not been told yet."""

    def breaks_off(self, trigger: str) -> None:
        """The job breaks off, now or in a moment: keep what would be lost. To return at once.

        Args:
            trigger: what has happened, in a sentence.
        """

    def save_first(self, attempt: Attempt, number: signal.Signals) -> None:
        """The workers will be signalled next: what has to be saved by them is saved now."""

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        """The workers are about to be stopped: watch them no more.

        Returns:
            the longest that they may take to end, s; None for torch's.
        """

    def stopped(self, attempt: Attempt, stop: Stop) -> None:
        """They are; others may be started."""

    def exit_code(self, attempt: Attempt) -> int:
        """The launcher's exit code for a job that has not succeeded; 0: nothing to say."""
        return 0

    def close(self) -> None:
        """The launcher ends: leave nothing. Comes last, and always."""
