"""Try-to-persist as a service of a job: workers save their last committed step after a fault."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from functools import partial

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.service import Action, End, Hold, Job, LookOnly, Service
from relkit.launch.job.settings import JobAborted
from relkit.launch.recovery.fault_recovery import FaultRecovery, exit_code
from relkit.launch.recovery.persist_host import PersistHost


class RecoveryService(Service):
    """Lets nobody stop workers that are led through a fault.

    Args:
        persist: of this launcher.
        hang_action: what is to be done about a hang; None while there is none.
    """

    def __init__(self, persist: PersistHost, hang_action: Callable[[], OnHang | None]) -> None:
        self._persist, self._hang_action = persist, hang_action
        self._job: Job | None = None
        self._recovery: FaultRecovery | None = None

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self._job = job

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        return self._persist.begin(attempt)

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        self._recovery = FaultRecovery(self._persist, {r.rank: r.pid for r in attempt.ranks})

    def worker_ended(self, rank: int, how: str) -> None:
        """See Service."""
        self._persist.lost(rank, how)

    def takes_over(self, attempt: Attempt, failure: str) -> Action | None:
        """See Service."""
        lead = self._recovery
        if lead is None or self._job is None:
            return None
        look = partial(lead.holds, attempt.workers.seen, failure, self._hang_action())
        if self._job.looks.take("try-to-persist", look, lead.began):
            return Hold()
        if not lead.began:
            return None
        self._job.breaks_off(failure or "a fault that try-to-persist has handled")
        if self._hang_action() is OnHang.ABORT:
            return End(JobAborted("the job hung, was saved and ended (--on-hang abort)"))
        return LookOnly()

    def save_first(self, attempt: Attempt, number: signal.Signals) -> None:
        """See Service."""
        if self._recovery is not None:
            self._recovery.save_first(number.name)

    def exit_code(self, attempt: Attempt) -> int:
        """See Service."""
        return exit_code(self._persist, attempt.workers.seen)

    def close(self) -> None:
        """See Service."""
        self._persist.close()
