"""The monitored agent of a job that has spares, or may lose nodes and go on."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from functools import partial
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.errors import RelkitError
from relkit.launch.job.bounded_calls import NoAnswer
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.node_name import node_name
from relkit.launch.job.rendezvous import leave_rendezvous
from relkit.launch.spares.dead_member import has_lost_a_member, look_at
from relkit.launch.spares.first_exchange import MeetingBroken
from relkit.launch.spares.settings import NodeGivenUp, SpareSettings
from relkit.launch.spares.spare_rendezvous import SpareRendezvous
from relkit.launch.standby_agent import StandbyAgent

# How a node that is convicted puts it; what follows is the reason.
_LEAVES = "leaves the job: "
# The longest that it may take to note a failure, before ranks are captured, s.
_NOTE_S = 1.0


class SpareAgent(StandbyAgent):
    """Meets as a SpareRendezvous says.

    A spare has no standbys: none of its workers has been seen to import anything yet.
    """

    # The launcher sets its own.
    meeting = SpareRendezvous(SpareSettings(), lambda _line: None, "")
    _has_started = False
    _min_nodes = 1
    _given_up = ""

    def run(self, role: str = "default") -> RunResult:
        """Run the job to its end; a spare that was not needed has succeeded."""
        spec = self._worker_group.spec
        self.meeting.attach(spec.rdzv_handler, lambda: spec.max_restarts - self._remaining_restarts)
        try:
            result: RunResult | None = super().run(role)
        except LeavesJob:
            raise
        except SignalException as error:
            self._leave_meeting(f"its launcher got {signal.Signals(error.sigval).name}")
            raise
        # torch's own code, which gets this, knows no run without a result.
        return RunResult(state=WorkerState.SUCCEEDED) if result is None else result

    @property
    def started(self) -> bool:
        """See MonitoredAgent; the nodes of a spare have met as well."""
        return super().started or self.meeting.waits_as_spare

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        while True:
            try:
                super()._rendezvous(worker_group)
            except MeetingBroken as why:
                self.services.log(f"{why}: the nodes meet again before the workers start")
            else:
                return

    def _assign_worker_ranks(self, store: Any, *more: Any, **named: Any) -> list[Any]:  # noqa: ANN401
        seen = self.meeting.first_exchange(store)
        workers: list[Any] = super()._assign_worker_ranks(seen, *more, **named)
        return workers

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        if self.services.network is not None:
            self.services.network.forget()
        if self.meeting.is_on:
            self._take_over(worker_group.spec.max_restarts)
        self._has_started = True
        return super()._start_workers(worker_group)

    def _take_over(self, max_restarts: int) -> None:
        """What the job has used before this node came; and how few nodes it may have now."""
        stragglers = self.services.stragglers
        if not self._has_started:
            left = max_restarts - self.meeting.membership.restarts
            self._remaining_restarts = max(0, min(self._remaining_restarts, left))
            self._min_nodes = 1 if stragglers is None else stragglers.min_nodes
        if stragglers is not None:
            stragglers.min_nodes = 1 if self.meeting.may_replace else self._min_nodes

    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:  # noqa: ANN401
        grows = self.meeting.grows and worker_group.state is WorkerState.HEALTHY
        super()._stop_workers(worker_group, *more, **named)
        if grows:
            # Ranks of another number go on from disk: from the last step that these have made.
            self._persist_slots("the job takes in another node")

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._given_up = ""
        result = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED and (why := self._given_up):
            error = NodeGivenUp(f"this node ({node_name()}) {_LEAVES}{why}")
            raise self._leaving(worker_group, error)
        return result

    def _failed(self, sentence: str) -> None:
        if self.meeting.is_on:
            # At once: workers of other nodes that have lost this one fail a moment later.
            trained_s = time.monotonic() - self._started_s
            with suppress(RendezvousError, NoAnswer):
                self._given_up = self._meetings.calls.call(
                    self.meeting.failed, trained_s, timeout_s=_NOTE_S
                )
        super()._failed(sentence)
        if self._given_up and self._has_lost_another():
            why = f"{self._given_up}: another node was lost"
            self.services.log(f"this node ({node_name()}) stays, although {why}")
            self._given_up = ""

    def _has_lost_another(self) -> bool:
        """Whether the loss of another node may be why workers failed here."""
        handler = self._worker_group.spec.rdzv_handler
        look = partial(self._meetings.calls.call, look_at, handler, timeout_s=_NOTE_S)
        with suppress(RendezvousError, NoAnswer):
            return has_lost_a_member(look, self.meeting.silence_limit_s)
        return False

    def _leaving(self, worker_group: WorkerGroup, why: RelkitError) -> LeavesJob:
        self.meeting.leaving_why = str(why).partition(_LEAVES)[2] or str(why)
        return super()._leaving(worker_group, why)

    def _leave_meeting(self, why: str) -> None:
        """Have a spare step in at once; it would, a little later, also where this fails."""
        if self.meeting.is_on and self._has_started and self.meeting.stop(why):
            with suppress(RendezvousError):
                leave_rendezvous(self._worker_group.spec.rdzv_handler, self._meetings.calls)
