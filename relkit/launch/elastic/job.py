"""The services of a job, asked one after the other; and what these may ask of the agent."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.errors import RelkitError
from relkit.launch.elastic.asked import asked
from relkit.launch.elastic.meeting import JobMeeting
from relkit.launch.elastic.setup import AgentSetup
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.looks import Looks
from relkit.launch.job.phases import Phase
from relkit.launch.job.rendezvous import leave_rendezvous
from relkit.launch.job.service import Action, Service, Stop, WorkerState
from relkit.launch.job.settings import ExitStatus, Log
from relkit.log_lines import warning


class RestartCount(Protocol):
    """Counts restarts: torch's agent."""

    restarts_left: int


class ServicedJob:
    """Asks each service in the order of their list; to them it is the Job.

    A service that fails is said, and is nothing to the job, nor to the others.

    Args:
        setup: has the services.
        meeting: of the launchers.
        agent: counts restarts.
        log: writes one line to the terminal.
        looks: takes the looks at the job that may fail.
    """

    def __init__(
        self, setup: AgentSetup, meeting: JobMeeting, agent: RestartCount, log: Log, looks: Looks
    ) -> None:
        self._services, self.phases = setup.services, setup.phases
        # Those that have seen the workers start: what another one knows is of workers before them.
        self._beside: list[Service] = list(setup.services)
        self._meeting, self._agent = meeting, agent
        self.log, self.looks = log, looks
        self.rank_store: Callable[[Any], Any] = lambda store: store
        self.ended_by: BaseException | None = None
        # The longest that workers may take to end, s; None for torch's.
        self.limit_s: int | None = None

    @property
    def restarts_left(self) -> int:
        """See Job."""
        return self._agent.restarts_left

    @restarts_left.setter
    def restarts_left(self, left: int) -> None:
        self._agent.restarts_left = left

    @property
    def restarts(self) -> int:
        """See Job."""
        return self._meeting.restarts(self.restarts_left)

    @property
    def rendezvous(self) -> Any:  # noqa: ANN401
        """See Job."""
        return self._meeting.handler

    @property
    def rendezvous_calls(self) -> BoundedCalls:
        """See Job."""
        return self._meeting.calls

    def breaks_off(self, trigger: str) -> None:
        """See Job."""
        self._tell(self._services, lambda service: service.breaks_off(trigger))

    def leave_rendezvous(self) -> None:
        """See Job."""
        leave_rendezvous(self.rendezvous, self.rendezvous_calls)

    @property
    def waits(self) -> bool:
        """This node waits beside a job whose nodes have met."""
        return any(service.waits for service in self._services)

    def begins(self) -> None:
        """The launcher begins its run."""
        for service in self._services:
            service.job_begins(self)

    def nodes_met(self, attempt: Attempt) -> None:
        """See Service.

        Raises:
            LeavesJob: this node leaves.
            MeetAgain: other nodes do.
        """
        for service in self._services:
            if leave := service.nodes_met(attempt):
                raise self.leaving(leave.why) from leave.why

    def leaving(self, why: RelkitError) -> LeavesJob:
        """This node leaves: the others meet without it."""
        self._tell(self._services, lambda service: service.leaves(why))
        try:
            self.leave_rendezvous()
        except RendezvousError as error:
            line = f"the other nodes will notice only later that this one left: {error}"
            self.log(warning(line))
        return LeavesJob(why)

    def before_workers(self, attempt: Attempt) -> None:
        """See Service."""
        self._tell(self._services, lambda service: service.before_workers(attempt))

    def environment(self, attempt: Attempt) -> dict[str, str]:
        """What all services add."""
        extra: dict[str, str] = {}
        answers = asked(self._services, lambda service: service.environment(attempt), self.looks)
        self._beside = []
        for service, more in answers:
            self._beside.append(service)
            extra |= more
        return extra

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        self._beside = self._tell(self._beside, lambda service: service.workers_started(attempt))
        self.phases.started(attempt)

    def worker_ended(self, rank: int, how: str) -> None:
        """See Service."""
        self._tell(self._beside, lambda service: service.worker_ended(rank, how))

    def taken_over(self, attempt: Attempt, failure: str) -> Action | None:
        """The first answer."""
        return self._first(lambda service: service.takes_over(attempt, failure))

    def polled(self, attempt: Attempt) -> Action | None:
        """The first answer."""
        return self._first(lambda service: service.poll(attempt))

    def looked(self, attempt: Attempt, state: WorkerState) -> Action | None:
        """The first answer."""
        return self._first(lambda service: service.looked(attempt, state))

    def failed(self, attempt: Attempt, sentence: str, ends: Mapping[int, ExitStatus]) -> None:
        """A worker failed: its peers are captured before they are stopped.

        Args:
            ends: how workers of this node have ended, by rank.
        """
        self.phases.failed(sentence, ends)
        with self.phases.phase(Phase.CAPTURE):
            self.breaks_off(sentence)
            self._tell(self._beside, lambda service: service.worker_failed(attempt, sentence))
            self._tell(self._beside, lambda service: service.failure_captured(attempt, sentence))
        self.phases.captured()

    def save_first(self, attempt: Attempt, number: signal.Signals) -> None:
        """See Service."""
        self._tell(self._beside, lambda service: service.save_first(attempt, number))

    def before_stop(self, attempt: Attempt, stop: Stop) -> None:
        """See Service; the shortest of the limits holds."""
        answers = asked(
            self._services, lambda service: service.before_stop(attempt, stop), self.looks
        )
        self.limit_s = min((limit_s for _, limit_s in answers if limit_s is not None), default=None)

    def stopped(self, attempt: Attempt, stop: Stop) -> None:
        """See Service."""
        self._tell(self._services, lambda service: service.stopped(attempt, stop))

    def exit_code(self, attempt: Attempt) -> int:
        """The first that is one."""
        codes = asked(self._services, lambda service: service.exit_code(attempt), self.looks)
        return next((code for _, code in codes if code), 0)

    def _first(self, ask: Callable[[Service], Action | None]) -> Action | None:
        answers = asked(self._beside, ask, self.looks)
        return next((action for _, action in answers if action is not None), None)

    def _tell(
        self, services: Iterable[Service], tell: Callable[[Service], object]
    ) -> list[Service]:
        """Tell each; those that have not failed."""
        return [service for service, _ in asked(services, tell, self.looks)]
