"""The network check as a service of a job: it may refuse a node before workers start."""

from __future__ import annotations

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Leave, MeetAgain, Service
from relkit.launch.netcheck.network_check import NetworkCheck, NodeFailedCheck


class NetcheckService(Service):
    """Checks the nodes that have met.

    Args:
        check: this node's part.
    """

    def __init__(self, check: NetworkCheck) -> None:
        self._check = check

    def nodes_met(self, attempt: Attempt) -> Leave | None:
        """See Service.

        Raises:
            TooFewNodes: other nodes leave, and the job cannot continue without them.
        """
        try:
            passed = self._check.passed(attempt)
        except NodeFailedCheck as why:
            return Leave(why)
        if not passed:
            raise MeetAgain
        return None

    def before_workers(self, attempt: Attempt) -> None:
        """See Service."""
        self._check.forget()
