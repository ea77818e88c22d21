"""torch's elastic agent, which asks services what is to be done with its workers.

The one file that uses what torch's agent keeps private. It knows no feature: see
`relkit/launch/job/service.py` for what a service is asked, and when.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.api import WorkerState as TorchState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.launch.elastic.added_environment import added_environment
from relkit.launch.elastic.job import ServicedJob
from relkit.launch.elastic.meeting import JobMeeting
from relkit.launch.elastic.setup import AgentSetup
from relkit.launch.elastic.worker_exits import WorkerExits
from relkit.launch.elastic.worker_shutdown import shut_down
from relkit.launch.job import service as asks
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, own_connection
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.looks import Looks
from relkit.launch.job.phases import LookEnd, Phase
from relkit.launch.job.service import Action, MeetAgain, Stop, WorkerState
from relkit.launch.job.session_key import SecretMismatch
from relkit.launch.job.settings import JobAborted, Log
from relkit.launch.job.worker_ends import look_first, wake_stopped, worker_files
from relkit.post_mortem.collector import WorkerFiles

_HOLD_S = 0.1
_STORE_GONE = "the rendezvous store has gone: the node that hosts it has left the job"
_STATES = {TorchState.SUCCEEDED: WorkerState.SUCCEEDED, TorchState.FAILED: WorkerState.FAILED}
_LOOK_ENDS = {TorchState.FAILED: LookEnd.FAILED, TorchState.UNHEALTHY: LookEnd.RESTARTS}


class JobAgent(LocalElasticAgent):
    """Starts, watches and restarts this node's workers as torch does, and asks its services.

    Args:
        setup: see there.
        log: writes one line to the terminal.
        looks: takes the looks at the job that may fail. All further arguments are torch's.
    """

    _attempt = Attempt("")
    _started = False
    _stop: Stop | None = None
    _is_led = False

    def __init__(
        self,
        setup: AgentSetup,
        log: Log,
        looks: Looks,
        *by_torch: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*by_torch, **named)
        self._prepare, self._log, self._looks = setup.prepare, log, looks
        self._meeting = JobMeeting(self._worker_group.spec, setup.secret, log)
        self._job = ServicedJob(setup, self._meeting, self, log, looks)
        self._exits = WorkerExits(self._worker_files, self._job.worker_ended)

    @property
    def restarts_left(self) -> int:
        """How often workers may be started again."""
        return self._remaining_restarts

    @restarts_left.setter
    def restarts_left(self, left: int) -> None:
        self._remaining_restarts = left

    @property
    def started(self) -> bool:
        """The nodes have met: workers of this rendezvous run, or this node waits beside it."""
        return self._started or self._job.waits

    def exit_code(self) -> int:
        """What the launcher of a job that has not succeeded ends with; 0: nothing of its own."""
        return self._job.exit_code(self._attempt)

    def leave(self, *, has_succeeded: bool) -> None:
        """See JobMeeting."""
        self._meeting.leave(self._worker_group.store, has_succeeded=has_succeeded)

    def run(self, role: str = "default") -> RunResult:
        """Run the job to its end; torch calls this once."""
        how, why = "succeeded", ""
        self._job.phases.job_begins(self._meeting.job_id)
        try:
            self._job.begins()
            result = self._run(role)
            how = "failed" if result.is_failed() else how
        except BaseException as error:
            self._job.ended_by = error
            how = "ended" if isinstance(error, SignalException) else "failed"
            why = str(error.why if isinstance(error, LeavesJob) else error)
            raise
        finally:
            self._job.phases.job_ended(how, why)
        return result

    def _run(self, role: str) -> RunResult:
        self._meeting.begin()
        try:
            result: RunResult | None = super().run(role)
        except JobAborted:
            self._meeting.report_failure(self._worker_group.store)
            raise
        finally:
            self._meeting.static.stop()
        if result is None:
            # The rendezvous was left in an orderly way: this node was a spare, and not needed.
            return RunResult(state=TorchState.SUCCEEDED)
        if result.is_failed():
            self._meeting.report_failure(self._worker_group.store)
        return result

    def _exit_barrier(self) -> None:
        self._in_exit_barrier = True  # read by torch's health check
        try:
            self._meeting.exit_barrier(super()._exit_barrier, self._exit_barrier_timeout)
        finally:
            self._in_exit_barrier = False

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        with self._job.phases.phase(Phase.RENDEZVOUS):
            while True:
                try:
                    self._meet(worker_group)
                except MeetAgain as why:
                    if str(why):
                        self._log(f"{why}: the nodes meet again before the workers start")
                else:
                    return

    def _meet(self, worker_group: WorkerGroup) -> None:
        self._started = False
        self._meeting.forget_workers_store()
        # In a thread, as no signal is handled inside a store's client. How long nodes may take to
        # meet is torch's to decide.
        self._meeting.calls.call(super()._rendezvous, worker_group, timeout_s=math.inf)
        self._remaining_restarts = self._meeting.static.restarts_left(self._remaining_restarts)
        # The barrier may hold its connection for minutes, and a node that leaves meanwhile needs
        # one too. Made now, as torch goes on trying to reach a host that has gone for a minute.
        store: Any = worker_group.store
        with contextlib.suppress(RuntimeError, OSError):
            self._store = own_connection(store)  # type: ignore[assignment]
        try:
            self._meeting.agree(worker_group)
        except (SecretMismatch, ExchangeBroken) as why:
            raise self._job.leaving(why) from why
        self._job.nodes_met(self._met(worker_group))

    def _assign_worker_ranks(self, store: Any, *more: Any, **named: Any) -> list[Any]:  # noqa: ANN401
        store = self._job.rank_store(store)
        return super()._assign_worker_ranks(store, *more, **named)  # type: ignore[no-any-return]

    def _met(self, worker_group: WorkerGroup) -> Attempt:
        return self._meeting.attempt(worker_group, self._remaining_restarts, self._exits)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._job.before_workers(self._met(worker_group))
        self._job.phases.starts()
        job_dir, extra = self._prepare(self._meeting.job_id, worker_group.spec.local_world_size)
        attempt = replace(self._met(worker_group), job_dir=job_dir)
        self._exits.begin()
        extra = {**extra, **self._job.environment(attempt)}
        self._meeting.begin_attempt(attempt)
        with added_environment(extra):
            pids: dict[int, Any] = super()._start_workers(worker_group)
        self._started = True
        look_first(self._pcontext, lambda: self._exits.seen, lambda: self._looks.is_blind)
        self._attempt = attempt.started(pids)
        self._job.workers_started(self._attempt)
        return pids

    def _worker_files(self) -> Mapping[int, WorkerFiles]:
        return worker_files(self._pcontext, self._worker_group.workers)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        watch = partial(self._watch, worker_group)
        result = self._looks.take("watching the workers", watch, None)
        if result is not None:
            return result
        # A round of looks has failed, as without a free descriptor: torch's own look is taken.
        # Nothing has been seen that it could wait for.
        self._looks.is_blind = True
        try:
            return super()._monitor_workers(worker_group)  # type: ignore[no-any-return]
        finally:
            self._looks.is_blind = False

    def _watch(self, worker_group: WorkerGroup) -> RunResult:
        self._job.phases.look_begins()
        self._is_led, end = False, LookEnd.BROKEN
        try:
            result = self._look(worker_group)
            end = _LOOK_ENDS.get(result.state, LookEnd.WORKS)
            return result
        except JobAborted:
            end = LookEnd.ABORTED
            raise
        finally:
            self._job.phases.look_ended(end, self._exits.seen, is_led=self._is_led)

    def _look(self, worker_group: WorkerGroup) -> RunResult:
        workers = worker_group.workers
        failure = self._exits.poll(workers)
        if failure:
            self._exits.settle(workers)
        # Do not return in between: torch restarts the workers when it sees another node come back.
        while isinstance(action := self._taken_over(failure), asks.Hold):
            time.sleep(min(worker_group.spec.monitor_interval, _HOLD_S))
            self._exits.poll(workers)
        has_led = isinstance(action, asks.LookOnly)
        if action is not None and not has_led:
            return self._do(action)
        if not has_led:
            if failure:  # here, before torch sees it: it stops the other workers in the same call
                self._job.failed(self._attempt, failure, self._exits.seen)
            if action := self._job.polled(self._attempt):
                return self._do(action)
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state is TorchState.FAILED and not failure and not has_led:
            sentence = self._exits.take(result.failures)
            self._job.failed(self._attempt, sentence, self._exits.seen)
        state = _STATES.get(result.state, WorkerState.HEALTHY)
        if action := self._job.looked(self._attempt, state):
            return self._do(action)
        return result

    def _taken_over(self, failure: str) -> Action | None:
        action = self._job.taken_over(self._attempt, failure)
        self._is_led |= action is not None and not isinstance(action, asks.Leave)
        return action

    def _do(self, action: Action) -> RunResult:
        if isinstance(action, asks.Leave):
            raise self._job.leaving(action.why)
        if isinstance(action, asks.End):
            raise action.why
        assert isinstance(action, asks.Restart)
        self._log(action.line)
        return RunResult(state=TorchState.UNHEALTHY)

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        is_well = worker_group.state is TorchState.HEALTHY
        self._stop = Stop.MEET_AGAIN if is_well else Stop.RESTART
        super()._restart_workers(worker_group)

    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:  # noqa: ANN401
        stop = self._stop = self._stop or Stop.END
        self._job.phases.meets_again()
        try:
            with self._job.phases.phase(Phase.STOP):
                self._job.before_stop(self._attempt, stop)
                super()._stop_workers(worker_group, *more, **named)
                self._job.stopped(self._attempt, stop)
        finally:
            self._stop = None

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *more: Any, **how: Any) -> None:  # noqa: ANN401
        # torch shuts workers down in the handler of this exception where the launcher is to end.
        ended_by, number = sys.exc_info()[1], signal.Signals(death_sig)
        self._job.phases.shuts_down(ended_by, number.name)
        with self._job.phases.phase(Phase.STOP):
            pids = self._pcontext.pids().values() if self._pcontext else ()
            look, save = partial(wake_stopped, pids, number), partial(self._save_first, number)
            self._looks.take("looking for stopped workers", look, None)
            self._looks.take("saving before the end", save, None)
            if isinstance(ended_by, LeavesJob):
                self._job.breaks_off(f"{ended_by.why}")
            elif isinstance(ended_by, SignalException):
                self._job.breaks_off(f"the launcher got {number.name}")
            elif isinstance(ended_by, RendezvousError) and self._started:
                # Before the workers are ended: nobody but this node's launcher can see them now.
                self._job.failed(self._attempt, _STORE_GONE, self._exits.seen)
            if self._stop is None:  # else services know
                self._job.before_stop(self._attempt, Stop.END)
            shut_down(super()._shutdown, self._pcontext, death_sig, more, how, self._job.limit_s)

    def _save_first(self, number: signal.Signals) -> None:
        """The launcher was asked to end (preemption, Ctrl-C), or workers are to be stopped."""
        self._job.save_first(self._attempt, number)
        self._exits.poll(self._worker_group.workers)
