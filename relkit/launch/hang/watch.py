"""What the monitor does at each tick: look, share, detect, and on a hang or failure judge.

Node 0 leads: it sees all nodes' views and decides. The others follow its orders, which come
through the mailbox. Without a working mailbox every node judges its own ranks, and says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.errors import BadDump
from relkit.hang.detect import HangDetector, Kind
from relkit.hang.model import RankView
from relkit.launch.hang import codec, incident
from relkit.launch.hang.observe import Observer
from relkit.launch.job.exchange import ExchangeBroken, Mailbox
from relkit.launch.job.settings import End, LocalRank, OnHang, Publish, Say, Settings
from relkit.ranks import RankSet
from relkit.stacks.model import RankDump

SHARE_EVERY_S = 1.0
# A node whose summary has not changed for this long is treated as not answering.
SILENT_NODE_S = 10.0
# How long the store may fail before a node judges on its own.
ALONE_AFTER_S = 5.0
# How long a following node that saw a failure waits for node 0 to take it up.
FAILURE_PATIENCE_S = 3.0
# How long a worker may take at least to reach its first operation before that is worth a word.
UNSEEN_S = 60.0
# How long node 0 waits for the others to have read its verdict.
SEEN_S = 3.0


@dataclass(frozen=True, slots=True)
class Site:
    """One incarnation of the job as this node sees it.

    Args:
        job_id: the run; goes into every dump.
        world_size: ranks in the job; 0 = as the recorders say.
        observer: looks at this node.
        mailbox: to the other nodes.
        ranks: this node's ranks now.
        ends: how this node's ranks ended, by rank, as far as the launcher knows.
    """

    job_id: str
    world_size: int
    observer: Observer
    mailbox: Mailbox
    ranks: Callable[[], Sequence[LocalRank]]
    ends: Callable[[], Mapping[int, End]]


class Watch:
    """Watches one incarnation; tick() is called a few times a second, always by one thread.

    Args:
        site: what to look at.
        settings: timeout and action.
        publish: gets what an incident found (node 0, or a node on its own).
        keep: gets a following node's dumps, to write them locally as well.
        say: one line to the terminal.
    """

    def __init__(
        self,
        site: Site,
        settings: Settings,
        *,
        publish: Publish,
        keep: Callable[[Sequence[RankDump]], None],
        say: Say,
    ) -> None:
        self._site, self._settings = site, settings
        self._publish, self._keep, self._say = publish, keep, say
        self._detector = HangDetector(settings.hang_timeout_s)
        self._number = 0
        self._answered = -1
        self._next_share_s = 0.0
        self._heard: dict[int, tuple[float, bytes, tuple[RankView, ...]]] = {}
        self._broken_since_s: float | None = None
        self._alone = False
        self._began_s: float | None = None
        self._told_unseen = False
        self._failure = ""
        self._failure_since_s: float | None = None
        self._failure_judged = False
        # Set by tick(), read by the launcher's thread.
        self.action: OnHang | None = None
        self.hung = False
        self.captured = threading.Event()
        self.judged = threading.Event()

    @property
    def leads(self) -> bool:
        """This node judges: it is node 0, or nobody else can be heard."""
        return self._site.mailbox.node == 0 or self._alone

    def fail(self, sentence: str) -> None:
        """Tell that a worker of this node failed; `captured` is set once its peers were read."""
        self._failure = sentence

    def tick(self, now_s: float) -> None:
        """Look once.

        Args:
            now_s: monotonic time, s.
        """
        # What node 0 is told, and what an incident is judged by, has it all.
        local = self._look(recent=self._site.mailbox.nodes > 1)
        self._tell_unseen(now_s, local)
        try:
            if self._site.mailbox.nodes > 1 and self._share(now_s, local):
                self._broken_since_s, self._alone = None, False
        except ExchangeBroken as error:
            self._degrade(now_s, error)
        try:
            if self.leads:
                self._lead(now_s, local)
            else:
                self._follow(now_s, local)
        except ExchangeBroken as error:
            self._degrade(now_s, error)

    def _look(self, *, recent: bool) -> tuple[RankView, ...]:
        return self._site.observer.views(self._site.ranks(), self._site.ends(), recent=recent)

    def _tell_unseen(self, now_s: float, local: Sequence[RankView]) -> None:
        """Say, once, which ranks have no recorder although there was time enough for one."""
        self._began_s = now_s if self._began_s is None else self._began_s
        patience_s = max(UNSEEN_S, self._settings.hang_timeout_s)
        if self._told_unseen or now_s - self._began_s < patience_s:
            return
        self._told_unseen = True
        unseen = RankSet.of(view.rank for view in local if view.alive and view.hook is None)
        if unseen:
            self._say(
                f"rank {unseen.fold()}: no operation seen yet; either the first one is still to "
                "come, or the hook is not loaded there (relkit doctor says why)"
            )

    def _degrade(self, now_s: float, error: ExchangeBroken) -> None:
        if self._broken_since_s is None:
            self._broken_since_s = now_s
        if not self._alone and now_s - self._broken_since_s >= ALONE_AFTER_S:
            self._alone = True
            self._say(f"{error}; from here on this node judges only its own ranks")

    def _share(self, now_s: float, local: Sequence[RankView]) -> bool:
        """Exchange summaries where it is time to; True where the store was reached."""
        if now_s < self._next_share_s:
            return False
        self._next_share_s = now_s + SHARE_EVERY_S
        mailbox = self._site.mailbox
        if mailbox.node != 0:
            # The time makes every note differ, so that node 0 can tell a silent node.
            mailbox.put(f"node/{mailbox.node}", codec.encode_views(local, {"at": now_s}))
            return True
        for node in range(1, mailbox.nodes):
            note = mailbox.get(f"node/{node}")
            if note is None or (node in self._heard and self._heard[node][1] == note):
                continue
            try:
                views, _ = codec.decode_views(note)
            except BadDump:
                continue
            self._heard[node] = (now_s, note, views)
        return True

    def _remote(self, now_s: float) -> tuple[RankView, ...]:
        found: list[RankView] = []
        for node, (heard_s, _, views) in sorted(self._heard.items()):
            silent_s = now_s - heard_s
            if silent_s > SILENT_NODE_S:
                reason = f"node {node} has not answered for {silent_s:.0f} s"
                views = tuple(replace(view, absent_reason=reason) for view in views)
            found += views
        return tuple(found)

    def _lead(self, now_s: float, local: Sequence[RankView]) -> None:
        remote = () if self._alone else self._remote(now_s)
        failure = self._failure or ("" if self._alone else self._remote_failure())
        if failure and not self._failure_judged:
            self._failure_judged = True
            if not self.hung:
                self._run_incident(failure, local, remote, hang=False)
            self.captured.set()
            self.judged.set()
            return
        detection = self._detector.update(now_s, (*local, *remote))
        self.hung = detection.kind is Kind.HUNG
        if detection.fresh and not failure:
            self._run_incident(detection.sentence, local, remote, hang=True)

    def _remote_failure(self) -> str:
        mailbox = self._site.mailbox
        for node in range(1, mailbox.nodes):
            note = mailbox.get(f"failure/{node}")
            if note is not None:
                return note.decode("utf-8", "replace")[:500]
        return ""

    def _world_size(self, views: Sequence[RankView]) -> int:
        highest = max((view.rank for view in views), default=-1) + 1
        told = max((view.hook.world_size for view in views if view.hook), default=1)
        return self._site.world_size or max(highest, told)

    def _run_incident(
        self, trigger: str, local: Sequence[RankView], remote: Sequence[RankView], *, hang: bool
    ) -> None:
        started, number, mailbox = time.time(), self._number, self._site.mailbox
        local = local if mailbox.nodes > 1 else self._look(recent=True)
        world_size = self._world_size((*local, *remote))
        deadline_s = incident.HANG_CAPTURE_S if hang else incident.FAILURE_CAPTURE_S
        self._say(f"{trigger}; capturing all ranks")
        others = mailbox.nodes > 1 and not self._alone
        silent: tuple[int, ...] = ()
        if others:
            order = {"job_id": self._site.job_id, "deadline_s": deadline_s}
            mailbox.put(f"incident/{number}", codec.pack(order))
        self._number += 1
        dumps = incident.capture_local(
            local,
            self._site.observer,
            job_id=self._site.job_id,
            world_size=world_size,
            deadline_s=deadline_s,
        )
        views = {view.rank: view for view in (*local, *remote)}
        if others:
            patience_s = deadline_s + incident.GATHER_MARGIN_S
            new_views, new_dumps, silent = incident.gather(mailbox, number, patience_s)
            views.update({view.rank: view for view in new_views})
            dumps += new_dumps
            views.update(self._silent(silent, patience_s))
        self.captured.set()
        judged = incident.judge(
            tuple(views.values()),
            dumps,
            job_id=self._site.job_id,
            world_size=world_size,
            trigger=trigger,
            settings=self._settings,
            started=started,
            absent=self._absent(world_size, others),
        )
        action = self._settings.on_hang if hang else None
        if others:
            result = {"sentence": judged.sentence, "action": action.value if action else ""}
            mailbox.put(f"incident/{number}/result", codec.pack(result))
        try:
            self._publish(judged.job, judged.verdict, judged.report, judged.dumps)
        finally:
            if others:
                # Node 0 often hosts the store: were it to go now, the others would never know.
                answered = set(range(1, mailbox.nodes)) - set(silent)
                incident.wait_for_notes(
                    mailbox, [f"incident/{number}/seen/{node}" for node in answered], SEEN_S
                )
            # Whatever becomes of the report: a job that is to be restarted is restarted.
            self.action = action or self.action

    def _silent(self, nodes: Sequence[int], patience_s: float) -> dict[int, RankView]:
        """The ranks of nodes that did not answer: what was known of them is out of date."""
        found: dict[int, RankView] = {}
        for node in nodes:
            reason = f"node {node} did not answer within {patience_s:g} s"
            self._say(reason)
            for view in self._heard[node][2] if node in self._heard else ():
                found[view.rank] = replace(view, absent_reason=view.absent_reason or reason)
        return found

    def _absent(self, world_size: int, others: bool) -> dict[int, str]:
        reason = (
            "its node sent nothing"
            if others
            else "it runs on another node, which this one cannot see"
        )
        return dict.fromkeys(range(world_size), reason)

    def _follow(self, now_s: float, local: Sequence[RankView]) -> None:
        mailbox = self._site.mailbox
        if self._failure and self._failure_since_s is None:
            self._failure_since_s = now_s
            mailbox.put(f"failure/{mailbox.node}", self._failure.encode())
        order = mailbox.get(f"incident/{self._number}")
        if order is None:
            waited_s = now_s - (self._failure_since_s or now_s)
            if waited_s > FAILURE_PATIENCE_S and not self._failure_judged:
                # Node 0 has gone already (it failed too, perhaps): judge what can be seen here.
                self._failure_judged = self._alone = True
                self._run_incident(self._failure, local, (), hang=False)
                self.judged.set()
            return
        if self._answered < self._number:
            self._answer(order, local)
        result = mailbox.get(f"incident/{self._number}/result")
        if result is None:
            return
        mailbox.put(f"incident/{self._number}/seen/{mailbox.node}", b"")
        self._number += 1
        facts = codec.unpack(result)
        self._say(f"node 0 judged: {facts.get('sentence', '')}")
        self.judged.set()
        action = facts.get("action")
        if action in {choice.value for choice in OnHang}:
            self.action, self.hung = OnHang(action), True

    def _answer(self, order: bytes, local: Sequence[RankView]) -> None:
        facts = codec.unpack(order)
        deadline_s = min(float(facts.get("deadline_s", 1.0)), incident.HANG_CAPTURE_S)
        dumps = incident.capture_local(
            local,
            self._site.observer,
            job_id=str(facts.get("job_id", self._site.job_id)),
            world_size=self._world_size(local),
            deadline_s=deadline_s,
        )
        incident.answer(self._site.mailbox, self._number, local, dumps)
        self._answered = self._number
        self._failure_judged = self._failure_judged or bool(self._failure)
        self.captured.set()
        self._keep(dumps)
