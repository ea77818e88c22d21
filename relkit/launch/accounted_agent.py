"""The monitored agent, with an account of where the time of each recovery goes."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.launch.accounting.accounts import (
    Accounts,
    Fault,
    fault_elsewhere,
    fault_of,
)
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.settings import JobAborted
from relkit.launch.spare_agent import SpareAgent

HANG = "hang"
_NODES = "nodes changed"


class AccountedAgent(SpareAgent):
    """Only watches the clock: what it adds to a call of the agent's is what it notes of it."""

    accounts: Accounts
    _looked_s = 0.0
    _hung_since_s: float | None = None
    _hung_seen_s = 0.0
    _captured_s = 0.0

    def run(self, role: str = "default") -> RunResult:
        """Run the job to its end, and note how that was."""
        how, why = "succeeded", ""
        self.accounts.begin(self._job_id())
        try:
            result: RunResult | None = super().run(role)
            if result is not None and result.is_failed():
                how = "failed"
        except SignalException as error:
            how, why = "ended", str(getattr(error, "why", "") or error)
            raise
        except BaseException as error:
            how, why = "failed", str(error)
            raise
        finally:
            self._note_suspicions()
            self.accounts.ended(how, why)
        return result  # type: ignore[return-value]  # as torch's own

    @property
    def is_training(self) -> bool:
        """The workers have been seen to work."""
        return self.accounts.is_working

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        with self.accounts.phase("rendezvous"):
            super()._rendezvous(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        slots = self.services.slots
        if slots is not None and self.accounts.in_fault:
            with self.accounts.phase("save"):
                slots.wait_collected()
            if (step := slots.newest()) >= 0:
                self.accounts.saved(step, "memory")
        # The monitor forgets those of the attempt before.
        self._note_suspicions()
        self.accounts.starts()
        pids = super()._start_workers(worker_group)
        self._looked_s, self._hung_since_s = time.monotonic(), None
        self.accounts.started(self._attempt, self.standbys.used)
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self.accounts.look()
        self._note_suspicions()
        self._note_hang()
        begin_s = time.monotonic()
        try:
            result = super()._monitor_workers(worker_group)
        except JobAborted:
            self._fault_of_hang()
            raise
        finally:
            self._note_save(begin_s)
        if result.state is WorkerState.UNHEALTHY:
            self._fault_of_hang()
        elif result.state is WorkerState.FAILED:
            # torch has stopped the other workers before it returned.
            self.accounts.fault(self._fault_of_workers("a worker failed"))
            self.accounts.took("stop", time.monotonic() - max(begin_s, self._captured_s))
        self._looked_s = begin_s
        return result

    def _failed(self, sentence: str) -> None:
        stragglers = self.services.stragglers
        why = stragglers.other_leaves() if stragglers is not None else ""
        fault = self._fault_of_workers(sentence)
        if told := self.services.monitor.remote_failure:
            # It was first: workers here have lost their peer.
            fault = fault_elsewhere(told, fault.since_s)
        if why:
            fault = Fault("node left", why, since_s=fault.since_s)
        elif self._hung_since_s is not None:
            fault = Fault(HANG, sentence, fault.rank, self._hung_since_s)
        self.accounts.fault(fault)
        with self.accounts.phase("capture"):
            super()._failed(sentence)
        self._captured_s = time.monotonic()

    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:  # noqa: ANN401
        # A fault that nobody here has seen: other nodes wait to meet again.
        told = self.services.monitor.remote_failure
        fault = Fault(_NODES, "other nodes joined, left or came back")
        self.accounts.fault(fault_elsewhere(told) if told else fault)
        with self.accounts.phase("stop"):
            super()._stop_workers(worker_group, *more, **named)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *more: Any, **how: Any) -> None:  # noqa: ANN401
        ended_by = sys.exc_info()[1]
        if isinstance(ended_by, LeavesJob):
            self.accounts.fault(Fault("node leaves", str(ended_by.why)))
        elif isinstance(ended_by, SignalException):
            name = signal.Signals(death_sig).name
            self.accounts.fault(Fault(f"launcher got {name}", f"the launcher got {name}"))
        with self.accounts.phase("stop"):
            super()._shutdown(death_sig, *more, **how)

    def _fault_of_workers(self, sentence: str) -> Fault:
        return fault_of(self._exit_statuses, sentence, self._looked_s)

    def _note_suspicions(self) -> None:
        for turn in self.services.monitor.take_suspicions():
            self.accounts.suspicion(turn)

    def _note_hang(self) -> None:
        """From when on the job has hung, as long as it hangs."""
        if not self.services.monitor.hung:
            self._hung_since_s = None
        elif self._hung_since_s is None:
            self._hung_seen_s = time.monotonic()
            moved_s = self.accounts.moved_s
            self._hung_since_s = self._hung_seen_s if moved_s is None else moved_s

    def _fault_of_hang(self) -> None:
        """The job hangs, has been captured and judged, and its workers are stopped."""
        if self._hung_since_s is None:
            return
        fault = Fault(HANG, "the job hung", -1, self._hung_since_s, self._hung_seen_s)
        if self.accounts.fault(fault):
            self.accounts.took("capture", time.monotonic() - self._hung_seen_s)

    def _note_save(self, begin_s: float) -> None:
        """Workers under try-to-persist were led through a fault in the call that ends now."""
        if self._recovery is None or not self._recovery.began:
            return
        fault = self._fault_of_workers("a fault that try-to-persist has handled")
        if self._hung_since_s is not None:
            fault = Fault(HANG, "the job hung", -1, self._hung_since_s, begin_s)
        if not self.accounts.fault(replace(fault, seen_s=begin_s)):
            return
        self._captured_s = time.monotonic()
        self.accounts.took("save", self._captured_s - begin_s)
        outcome = self.services.persist.outcome if self.services.persist is not None else None
        if outcome is not None and outcome.step >= 0:
            self.accounts.saved(outcome.step, "try-to-persist")
