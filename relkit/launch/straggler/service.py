"""The search for stragglers, as a service of a job."""

from __future__ import annotations

from collections.abc import Mapping

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import Mailbox, MemoryMailbox
from relkit.launch.job.service import Action, Leave, Service, Stop
from relkit.launch.straggler.exclusion import Excluded
from relkit.launch.straggler.straggler_thread import Stragglers


class StragglerService(Service):
    """Has each attempt looked at, and has this node leave where it is excluded.

    Args:
        stragglers: looks, in a thread.
    """

    def __init__(self, stragglers: Stragglers) -> None:
        self._stragglers = stragglers
        self._mailbox: Mailbox = MemoryMailbox()

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        self._stragglers.forget_earlier_job(attempt.job_dir, attempt.node)
        self._mailbox = attempt.mailbox("straggler")
        return {}

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        self._stragglers.begin(attempt, self._mailbox)

    def takes_over(self, attempt: Attempt, failure: str) -> Action | None:
        """See Service."""
        why = self._stragglers.leaves()
        return Leave(Excluded(f"this node leaves the job: {why}")) if why else None

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        """See Service."""
        self._stragglers.pause()
        return None

    def close(self) -> None:
        """See Service."""
        self._stragglers.close()
