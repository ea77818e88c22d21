"""The watch over one attempt of a job: each tick, every node looks, and one node decides.

Node 0 decides, because the summaries of all nodes come to it (`leader`). The others follow its
requests, which come through the mailbox (`follower`). While the mailbox does not work, every node
decides for its own ranks, and logs that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relkit.hang.model import RankView
from relkit.launch.hang.attempt import WatchedAttempt, WatchState
from relkit.launch.hang.follower import WatchFollower
from relkit.launch.hang.leader import WatchLeader
from relkit.launch.job.exchange import ExchangeBroken
from relkit.launch.job.settings import Log, MonitorSettings, Publish
from relkit.stacks.model import RankDump

# How long the store may fail before a node decides for its own ranks.
ALONE_AFTER_S = 5.0


class Watch:
    """Watches one attempt; tick() is called a few times a second, always by one thread.

    Args:
        attempt: what to look at.
        settings: timeout and action.
        publish: gets the result of an incident (on node 0, or on a node that is alone).
        write_dumps: gets a following node's dumps, to write them to its own disk as well.
        log: writes one line to the terminal.
    """

    def __init__(
        self,
        attempt: WatchedAttempt,
        settings: MonitorSettings,
        *,
        publish: Publish,
        write_dumps: Callable[[Sequence[RankDump]], None],
        log: Log,
    ) -> None:
        self.state = WatchState()
        self._attempt, self._hang_timeout_s = attempt, settings.hang_timeout_s
        self._log = log
        self._leader = WatchLeader(attempt, self.state, settings, publish=publish, log=log)
        self._follower = WatchFollower(attempt, self.state, write_dumps=write_dumps, log=log)
        self._broken_since_s: float | None = None
        self._alone = False

    @property
    def leads(self) -> bool:
        """This node decides: it is node 0, or it cannot reach the others."""
        return self._attempt.mailbox.node == 0 or self._alone

    def fail(self, sentence: str) -> None:
        """A worker of this node failed; `state.captured` is set once its peers were captured."""
        self.state.failure = sentence

    def tick(self, now_s: float) -> None:
        """Look once.

        Args:
            now_s: monotonic time, s.
        """
        is_shared = self._attempt.mailbox.nodes > 1
        # Only what is sent to node 0, and what an incident is judged by, needs finished operations.
        local = self._attempt.local_views(recent=is_shared)
        self._attempt.deaths.look(view.pid for view in local if view.alive)
        self._follower.report_unseen(now_s, local, self._hang_timeout_s)
        self._follower.report_unreadable()
        self._follower.report_refusals(local)
        try:
            if is_shared and self._exchange(now_s, local):
                self._broken_since_s, self._alone = None, False
        except ExchangeBroken as error:
            self._degrade(now_s, error)
        try:
            if not self.leads:
                self._follower.follow(now_s, local)
                self._alone = self._follower.is_abandoned(now_s)
            if self.leads:
                self._leader.decide(now_s, local, alone=self._alone)
        except ExchangeBroken as error:
            self._degrade(now_s, error)

    def _exchange(self, now_s: float, local: Sequence[RankView]) -> bool:
        """Node 0 receives the others' summaries, the others send theirs; True where one did."""
        if self._attempt.mailbox.node != 0:
            return self._follower.share(now_s, local)
        return self._leader.receive(now_s)

    def _degrade(self, now_s: float, error: ExchangeBroken) -> None:
        if self._broken_since_s is None:
            self._broken_since_s = now_s
        if not self._alone and now_s - self._broken_since_s >= ALONE_AFTER_S:
            self._alone = True
            self._log(f"{error}; from here on this node judges only its own ranks")
