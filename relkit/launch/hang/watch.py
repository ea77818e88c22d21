"""The watch over one attempt of a job: each tick, every node looks, and one node decides.

The leader decides, because the summaries of all nodes come to it (`leader`): node 0, and the next
node that lives where that one is not heard any more. The others follow its requests, which come
through the mailbox (`follower`). While the mailbox does not work, every node decides for its own
ranks, and logs that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from relkit.hang.model import RankView
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.hang.follower import WatchFollower
from relkit.launch.hang.leader import WatchLeader
from relkit.launch.hang.links.checks import LinkChecks
from relkit.launch.hang.observe import Observer
from relkit.launch.job.exchange import ExchangeBroken
from relkit.launch.job.settings import Log, MonitorSettings, Publish
from relkit.log_lines import warning
from relkit.ranks import RankSet
from relkit.stacks.model import RankDump

# How long the mailbox may fail before a node decides for its own ranks.
ALONE_AFTER_S = 5.0
# A rank without a recorder is reported after this time, or after the hang timeout if longer.
MIN_UNSEEN_S = 60.0


class Watch:
    """Watches one attempt; tick() is called a few times a second, always by one thread.

    Args:
        watched: what to look at.
        settings: timeout and action.
        publish: gets the result of an incident (on the leader, or on a node that is alone).
        write_dumps: gets a following node's dumps, to write them to its own disk as well.
        log: writes one line to the terminal.
    """

    def __init__(
        self,
        watched: WatchedRanks,
        settings: MonitorSettings,
        *,
        publish: Publish,
        write_dumps: Callable[[Sequence[RankDump]], None],
        log: Log,
    ) -> None:
        self.state = WatchState()
        self._watched = watched
        self._unwatched = UnwatchedRanks(watched.observer, settings.hang_timeout_s, log)
        self._log = log
        checks = LinkChecks(watched.mailbox, log, is_asked_for=settings.on_hang_netcheck)
        self._leader = WatchLeader(
            watched, self.state, settings, checks=checks, publish=publish, log=log
        )
        self._follower = WatchFollower(
            watched, self.state, checks=checks, write_dumps=write_dumps, log=log
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
        return self._led_by == self._watched.mailbox.node

    def fail(self, sentence: str) -> None:
        """A worker of this node failed; `state.captured` is set once its peers were captured."""
        self.state.failure = sentence

    def tick(self, now_s: float) -> None:
        """Look once.

        Args:
            now_s: monotonic time, s.
        """
        is_shared = self._watched.mailbox.nodes > 1
        # Only what is sent to node 0, and what an incident is judged by, needs finished operations.
        local = self._watched.local_views(recent=is_shared)
        self._watched.deaths.look(view.pid for view in local if view.alive)
        self._unwatched.report(now_s, local)
        self._note_leader()
        try:
            if is_shared and self._exchange(now_s, local):
                self._broken_since_s, self._alone = None, False
        except ExchangeBroken as error:
            self._degrade(now_s, error)
        try:
            if not self.leads and self._watched.mailbox.leader == self._led_by:
                self._follower.follow(now_s, local)
                self._alone = self._follower.is_abandoned(now_s)
            if self.leads:
                self._leader.decide(now_s, local, alone=self._alone)
        except ExchangeBroken as error:
            self._degrade(now_s, error)

    def _note_leader(self) -> None:
        """Say so where another node leads than at the last look."""
        mailbox = self._watched.mailbox
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
            self._log(warning(f"{error}; from here on this node judges only its own ranks"))


class UnwatchedRanks:
    """What one node has to say of its recorders; called by the monitor's thread only.

    Args:
        observer: reads them.
        hang_timeout_s: the user's limit, s.
        log: writes one line to the terminal.
    """

    def __init__(self, observer: Observer, hang_timeout_s: float, log: Log) -> None:
        self._observer, self._log = observer, log
        self._patience_s = max(MIN_UNSEEN_S, hang_timeout_s)
        self._began_s: float | None = None
        self._unseen_reported = False
        self._removed_reported = False
        self._unreadable_reported: set[Path] = set()
        self._refusals_reported: set[str] = set()

    def report(self, now_s: float, local: Sequence[RankView]) -> None:
        """Log what was not logged yet.

        Args:
            now_s: monotonic time, s.
            local: this node's ranks.
        """
        self._report_unseen(now_s, local)
        self._report_removed(local)
        self._report_unreadable()
        self._report_refusals(local)

    def _report_unseen(self, now_s: float, local: Sequence[RankView]) -> None:
        """Ranks that have no recorder although there was time enough for one."""
        self._began_s = now_s if self._began_s is None else self._began_s
        if self._unseen_reported or now_s - self._began_s < self._patience_s:
            return
        self._unseen_reported = True
        without = {view.rank for view in local if view.alive and view.hook is None}
        strange = RankSet.of(without & self._observer.strange)
        if strange:
            line = (
                f"{strange.in_words()}: not watched, as the process cannot be seen or timed from "
                "here (PID and time namespaces, of containers or by unshare)"
            )
            self._log(warning(line))
        unseen = RankSet.of(without - self._observer.strange)
        if unseen:
            self._log(
                f"rank {unseen.fold()}: no operation seen yet; either the first one is still to "
                "come, or the hook is not loaded there (run `relkit doctor`)"
            )

    def _report_removed(self, local: Sequence[RankView]) -> None:
        """Recorder files that somebody has removed while their ranks run."""
        folder, removed = self._observer.removed_folder, self._observer.removed
        if self._removed_reported or (folder is None and not removed):
            return
        self._removed_reported = True
        watched = RankSet.of(view.rank for view in local if view.pid in removed)
        lost = RankSet.of(view.rank for view in local if view.alive and view.hook is None)
        what = f"{folder} has been removed" if folder else "recorder files have been removed"
        if watched:
            what += f"; {watched.in_words()} can be watched on, as their files are open here"
        if lost:
            what += f"; hangs of {lost.in_words()} are not seen from now on"
        line = (
            f"{what}. logind's RemoveIPC=yes, the epilog of another job or a cleaner of /dev/shm "
            "does that: have it leave relkit-* alone"
        )
        self._log(warning(line))

    def _report_unreadable(self) -> None:
        """Recorder files that stay unreadable."""
        for path, why in self._observer.unreadable.items():
            if path not in self._unreadable_reported:
                self._unreadable_reported.add(path)
                self._log(
                    warning(f"{path.name} cannot be read ({why}); that process is not watched")
                )

    def _report_refusals(self, local: Sequence[RankView]) -> None:
        """Reasons for which processes record nothing."""
        ranks = {view.pid: view.rank for view in local}
        for refusal in self._observer.take_refusals():
            if refusal.reason in self._refusals_reported:
                continue
            self._refusals_reported.add(refusal.reason)
            who = f"pid {refusal.pid}"
            if refusal.pid in ranks:
                who = f"rank {ranks[refusal.pid]} ({who})"
            what = f"{who} runs without a recorder: {refusal.reason}; its hangs are not detected"
            self._log(warning(what))
