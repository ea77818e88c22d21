"""The history as a service of a job."""

from __future__ import annotations

from collections.abc import Mapping

from relkit.launch.history.keeper import HistoryKeeper
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.launch.job.service import Service, Stop


class HistoryService(Service):
    """Tells the keeper when nodes have met, and when reports are there.

    Args:
        keeper: writes, in a thread; it outlives the services, as the journal does.
    """

    def __init__(self, keeper: HistoryKeeper) -> None:
        self._keeper = keeper

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        try:
            mailbox = attempt.mailbox("history") if attempt.nodes > 1 else MemoryMailbox()
        except ExchangeBroken:
            return {}
        self._keeper.met(mailbox, attempt.host)
        return {}

    def stopped(self, attempt: Attempt, stop: Stop) -> None:
        """See Service."""
        self._keeper.attempt_ends()
