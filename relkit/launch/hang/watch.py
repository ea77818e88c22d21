"""The watch over one attempt of a job: each tick, every node looks, and one node decides.

The leader decides, because the summaries of all nodes come to it (`leader`): node 0, and the next
node that lives where that one is not heard any more. The others follow its requests, which come
through the mailbox (`follower`). While the mailbox does not work, every node decides for its own
ranks, and logs that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relkit.hang.model import RankView
from relkit.launch.hang.attempt import WatchedAttempt, WatchState
from relkit.launch.hang.follower import WatchFollower
from relkit.launch.hang.leader import WatchLeader
from relkit.launch.hang.links.checks import LinkChecks
from relkit.launch.hang.unwatched_ranks import UnwatchedRanks
from relkit.launch.job.exchange import ExchangeBroken
from relkit.launch.job.settings import Log, MonitorSettings, Publish
from relkit.ranks import RankSet
from relkit.stacks.model import RankDump

# How long the mailbox may fail before a node decides for its own ranks.
ALONE_AFTER_S = 5.0


class Watch:
    """Watches one attempt; tick() is called a few times a second, always by one thread.

    Args:
        attempt: what to look at.
        settings: timeout and action.
        publish: gets the result of an incident (on the leader, or on a node that is alone).
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
        self._attempt = attempt
        self._unwatched = UnwatchedRanks(attempt.observer, settings.hang_timeout_s, log)
        self._log = log
        checks = LinkChecks(attempt.mailbox, log, is_asked_for=settings.on_hang_netcheck)
        self._leader = WatchLeader(
            attempt, self.state, settings, checks=checks, publish=publish, log=log
        )
        self._follower = WatchFollower(
            attempt, self.state, checks=checks, write_dumps=write_dumps, log=log
        )
        self._broken_since_s: float | None = None
        self._alone = False
        self._led_by = 0

    @property
    def leads(self) -> bool:
        """This node decides: it is the leader, or it cannot reach the others."""
        return self._is_leader or self._alone

    @property
    def _is_leader(self) -> bool:
        # As noted at this look: who leads may change while it lasts, and nothing is done before
        # that was said.
        return self._led_by == self._attempt.mailbox.node

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
        self._unwatched.report(now_s, local)
        self._note_leader()
        try:
            if is_shared and self._exchange(now_s, local):
                self._broken_since_s, self._alone = None, False
        except ExchangeBroken as error:
            self._degrade(now_s, error)
        try:
            if not self.leads and self._attempt.mailbox.leader == self._led_by:
                self._follower.follow(now_s, local)
                self._alone = self._follower.is_abandoned(now_s)
            if self.leads:
                self._leader.decide(now_s, local, alone=self._alone)
        except ExchangeBroken as error:
            self._degrade(now_s, error)

    def _note_leader(self) -> None:
        """Say so where another node leads than at the last look."""
        mailbox = self._attempt.mailbox
        leader = mailbox.leader
        if leader == self._led_by:
            return
        who = "this node" if leader == mailbox.node else f"node {leader}"
        lost = mailbox.silent
        nodes = f"node{'s' if len(lost) > 1 else ''} {RankSet.of(lost).fold()}"
        why = f"{nodes} cannot be reached: " if lost else ""
        self._log(f"{why}{who} leads the watch over the job from here on")
        self._led_by = leader
        if not self.state.judged.is_set():
            # The one before has perhaps asked for a capture, and never judged.
            self.state.failure_handled = False

    def _exchange(self, now_s: float, local: Sequence[RankView]) -> bool:
        """The leader receives the others' summaries, who send theirs; True where one did."""
        if not self._is_leader:
            return self._follower.share(now_s, local)
        return self._leader.receive(now_s)

    def _degrade(self, now_s: float, error: ExchangeBroken) -> None:
        if self._broken_since_s is None:
            self._broken_since_s = now_s
        if not self._alone and now_s - self._broken_since_s >= ALONE_AFTER_S:
            self._alone = True
            self._log(f"{error}; from here on this node judges only its own ranks")
