"""The part of the watch that decides: detect a hang, have all ranks captured, judge, act.

It runs on the node that leads (node 0, or the one that has succeeded it), which sees the ranks of
all nodes that can be reached. A node that cannot reach the others runs it for its own ranks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from relkit.hang.columns.ranks import RankColumns
from relkit.hang.detection.detector import HangDetector, JobHealth
from relkit.hang.detection.flights import Flights
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.links.joined import in_words
from relkit.hang.links.model import LinkCheck
from relkit.hang.links.suspects import suspects_of, with_unheard_nodes
from relkit.hang.model import HangVerdict, RankView
from relkit.hang.suspicion.group_mates import group_mates
from relkit.hang.suspicion.watch import PACE_S
from relkit.hang.suspicion.whom_to_ask import ALL_UP_TO, MATES, whom_to_ask
from relkit.hang.waits import Wait
from relkit.launch.hang import codec, incident
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.hang.incident import IncidentResult
from relkit.launch.hang.links.checks import LinkChecks
from relkit.launch.hang.remote_views import SHARE_EVERY_S, RemoteViews, no_answer, plain_ranks
from relkit.launch.hang.state_source import Occasion
from relkit.launch.hang.suspicions import Suspicions
from relkit.launch.job.exchange import ExchangeBroken, wait_for_notes
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import Log, MonitorSettings, Publish
from relkit.log_lines import warning
from relkit.ranks import RankSet
from relkit.stacks.model import RankDump

# After this part of the timeout the other nodes are asked for all that they know of their ranks.
_SOON = 0.5
# How long the leader waits for the others to have read its verdict.
SEEN_S = 3.0


class WatchLeader:
    """Decides for the whole job, or for one node that is on its own.

    Args:
        watched: the job.
        state: shared with the launcher's thread.
        settings: timeout and action.
        checks: has the links between the suspects' nodes measured.
        publish: gets the result of an incident.
        log: writes one line to the terminal.
    """

    def __init__(
        self,
        watched: WatchedRanks,
        state: WatchState,
        settings: MonitorSettings,
        *,
        checks: LinkChecks,
        publish: Publish,
        log: Log,
    ) -> None:
        self._watched, self._state, self._settings = watched, state, settings
        self._checks, self._publish, self._log = checks, publish, log
        self._detector = HangDetector(settings.hang_timeout_s)
        self._suspicions = Suspicions(watched, state, settings.hang_timeout_s, log)
        self._remote, self._has_news = RemoteViews(watched.mailbox), False
        self._incident = 0
        self._choose_again_s = 0.0
        # In a large job: ranks chosen by their summaries, and likely members of their groups.
        self._chosen, self._mates = RankSet(), RankSet()

    def receive(self, now_s: float) -> bool:
        """Read the other nodes' summaries; see RemoteViews.receive."""
        self._has_news = False  # as long as it raises
        self._has_news = self._remote.receive(now_s)
        return self._has_news

    @property
    def asked(self) -> int:
        """Of how many ranks more than their summaries is asked for."""
        return len(self._remote.asked)

    @property
    def told(self) -> int:
        """Of how many of those it has come."""
        return len(self._remote.told())

    def decide(self, now_s: float, local: Sequence[RankView], *, alone: bool) -> None:
        """Handle a failure where there is one; else look for a hang.

        Args:
            now_s: monotonic time, s.
            local: this node's ranks.
            alone: the other nodes cannot be reached.

        Raises:
            ExchangeBroken: the store failed.
        """
        state = self._state
        failed = "" if state.failure or alone else self._remote_failure()
        state.remote_failure = state.remote_failure or failed
        failure = state.failure or failed
        if failure and not state.failure_handled:
            state.failure_handled = True
            # The report of a hang explains the failure that ended it.
            if not state.hung:
                others = self._to_judge(now_s, alone=alone)
                self._report(failure, local, others, on_hang=None, alone=alone)
            state.captured.set()
            state.judged.set()
            return
        # A look over so many ranks takes long: only where there is something new to look at.
        if not (alone or self._has_news) and self._remote.share_every_s > SHARE_EVERY_S:
            return
        near = columns_of(local)
        ranks = near if alone else self._remote.columns(near)
        told = {} if alone else self._remote.told()
        views = {**told, **{view.rank: view for view in local}}
        detection = self._detector.look_at(now_s, ranks, views)
        state.hung = detection.health is JobHealth.HUNG
        self._suspicions.look_at(
            now_s, self._detector, detection.health, local,
            lambda: self._to_judge(now_s, alone=alone), ranks,
        )  # fmt: skip
        if detection.fresh and not failure:
            others = self._to_judge(now_s, alone=alone)
            on_hang = self._settings.on_hang
            self._report(detection.sentence, local, others, on_hang=on_hang, alone=alone)
        if not alone:
            self._ask(now_s, detection.health, ranks, local)

    def _to_judge(self, now_s: float, *, alone: bool) -> tuple[RankView, ...]:
        """The ranks of the other nodes by which the job is judged: in a large job not all.

        Args:
            alone: the other nodes cannot be reached.
        """
        if alone:
            return ()
        return self._remote.notable(now_s) if self._is_large else self._remote.all(now_s)

    @property
    def _is_large(self) -> bool:
        """The other nodes have more ranks than are all asked for."""
        return self._remote.count > ALL_UP_TO

    def _ask(
        self, now_s: float, health: JobHealth, ranks: RankColumns, local: Sequence[RankView]
    ) -> None:
        """Ask the other nodes for more than their summaries where that may be needed soon."""
        look, near = self._detector.look, len(local)
        ages_s = Flights.of(look.flights).columns.age_s
        stalled_s = max(look.idle_s, float(ages_s.max(initial=0.0)))
        soon = stalled_s > _SOON * self._settings.hang_timeout_s
        if health is JobHealth.HUNG or soon or self._suspicions.is_near:
            # Whoever was asked for is asked for a while: what a rank does is seen in two looks.
            if now_s >= self._choose_again_s:
                self._choose_again_s = now_s + PACE_S
                self._chosen = whom_to_ask(ranks, Flights.of(look.flights).columns, near)
            if health is JobHealth.HUNG:
                self._mates = RankSet()  # it has been judged
            elif self._is_large and soon:
                self._follow_waits(local)
            self._remote.ask(self._chosen | self._mates)
            return
        self._choose_again_s, self._mates = now_s, RankSet()
        gone = ranks.rank[near:][~ranks.alive[near:] & ~ranks.left[near:]]
        self._remote.ask(RankSet.of(gone[:ALL_UP_TO].tolist()))

    def _follow_waits(self, local: Sequence[RankView]) -> None:
        """A verdict on a large job is near: ask about those, too, that ranks may wait for."""
        views = (*local, *self._remote.told().values())
        world_size, asked = self._watched.world_size_of(views), self._chosen | self._mates
        self._mates |= group_mates(views, world_size, asked, MATES - len(self._mates))

    def _remote_failure(self) -> str:
        note = self._watched.mailbox.first("failure/")
        return "" if note is None else note.decode("utf-8", "replace")[:500]

    def _report(
        self,
        trigger: str,
        local: Sequence[RankView],
        remote: Sequence[RankView],
        *,
        on_hang: OnHang | None,
        alone: bool,
    ) -> None:
        # The launcher does not end before this is done, even if the store does not answer.
        self._state.reporting = True
        try:
            self._handle(trigger, local, remote, on_hang=on_hang, alone=alone)
        finally:
            self._state.reporting = False

    def _handle(
        self,
        trigger: str,
        local: Sequence[RankView],
        remote: Sequence[RankView],
        *,
        on_hang: OnHang | None,
        alone: bool,
    ) -> None:
        """One incident; `on_hang` is None for a failure, which is torchrun's to act on."""
        watched, started = self._watched, time.time()
        if watched.mailbox.nodes == 1:
            local = watched.local_views(recent=True)
        occasion = Occasion.FAILURE if on_hang is None else Occasion.HANG
        local = watched.closer_views(local, occasion)
        if on_hang is None:
            local = watched.with_others_that_fail(local)
        world_size = watched.world_size_of((*local, *remote))
        deadline_s = incident.FAILURE_CAPTURE_S if on_hang is None else incident.HANG_CAPTURE_S
        if watched.mailbox.nodes > 1 or any(view.alive for view in local):
            self._log(warning(f"{trigger}; capturing all ranks", "hang"))
        number = self._incident
        self._incident += 1
        is_sample = not alone and self._is_large
        asked = self._sample(local) if is_sample else None
        is_shared = (
            watched.mailbox.nodes > 1 and not alone and self._request(number, deadline_s, asked)
        )
        dumps = watched.capture(local, deadline_s, world_size=world_size, job_id=watched.job_id)
        local = watched.with_deaths(watched.with_ends(local))
        views = {view.rank: view for view in (*local, *remote)}
        silent_nodes: tuple[int, ...] = ()
        if is_shared:
            dumps, silent_nodes = self._gather(number, deadline_s, views, dumps)
        self._state.captured.set()
        if not is_shared:
            views.update(
                {v.rank: v for v in watched.with_core_stacks(local, incident.CORE_STACK_S)}
            )
        why_absent = self._why_absent(silent_nodes, is_shared=is_shared)
        result = incident.judge(
            tuple(views.values()),
            dumps,
            job_id=watched.job_id,
            world_size=world_size,
            trigger=trigger,
            settings=self._settings,
            started=started,
            on_hang=on_hang,
            absent=dict.fromkeys(range(world_size), why_absent),
            suspicions=() if on_hang is None else self._suspicions.present,
            sees_all=watched.sees_all,
            is_sample=is_sample,
            measure_links=partial(
                self._measure_links, number, local, silent_nodes, is_shared=is_shared
            )
            if on_hang is not None and self._checks.is_asked_for
            else None,
        )
        if result.verdict.is_over and on_hang is not None:
            on_hang = self._give_time_to_exit(on_hang)
        if is_shared:
            self._send_result(number, result, on_hang)
        try:
            self._publish(result.job, result.verdict, result.report, result.dumps)
        finally:
            if is_shared:
                self._wait_until_read(number, silent_nodes)
            # Whatever becomes of the report: a job that is to be restarted is restarted.
            self._state.action = on_hang or self._state.action

    def _give_time_to_exit(self, on_hang: OnHang) -> OnHang | None:
        """What to do about a job whose scripts have all ended: nothing, the first time."""
        if self._detector.is_over:
            return on_hang
        self._detector.give_time_to_exit()
        self._state.hung = False
        if on_hang is not OnHang.REPORT:
            self._log(
                f"all scripts have ended: --on-hang {on_hang} is carried out only once no rank has "
                f"used a CPU for another {self._settings.hang_timeout_s:g} s"
            )
        return None

    def _measure_links(
        self,
        number: int,
        local: Sequence[RankView],
        silent_nodes: Sequence[int],
        verdict: HangVerdict,
        waits: Sequence[Wait],
        *,
        is_shared: bool,
    ) -> LinkCheck:
        """Of the nodes of the suspects and of those that wait for them."""
        mailbox = self._watched.mailbox
        node_of = self._remote.node_of() | {view.rank: mailbox.node for view in local}
        node_of = with_unheard_nodes(node_of, mailbox.nodes, self._watched.world_size)
        suspects = suspects_of(verdict, waits, node_of)
        if is_shared or mailbox.nodes == 1:
            check = self._checks.lead(number, suspects, silent_nodes)
        else:
            check = LinkCheck(suspects, {}, problem="the other nodes cannot be reached")
        has_result = check.links or check.unreachable
        self._log(f"links of the suspects: {in_words(check) if has_result else check.problem}")
        return check

    def _why_absent(self, silent_nodes: Sequence[int], *, is_shared: bool) -> str:
        if not is_shared:
            return "it runs on another node, which this one cannot see"
        if silent_nodes and self._watched.mailbox.silent.issuperset(silent_nodes):
            return "its node cannot be reached"
        return "its node sent nothing"

    def _sample(self, local: Sequence[RankView]) -> RankSet:
        """Of a large job, the ranks on other nodes whose stacks are brought here.

        All ranks are captured, and their stacks are on the disks of their nodes.
        """
        near = columns_of(local)
        flights = Flights.of(self._detector.look.flights).columns
        return whom_to_ask(self._remote.columns(near), flights, len(near)) | self._remote.asked

    def _request(self, number: int, deadline_s: float, asked: RankSet | None) -> bool:
        """Ask the other nodes for their captures; False where they cannot be reached.

        Args:
            number: of the incident; deadline_s: for each capture, s.
            asked: send only those of these ranks; None for all.
        """
        note = {"job_id": self._watched.job_id, "deadline_s": deadline_s}
        if asked is not None:
            note |= plain_ranks(asked)
        try:
            self._watched.mailbox.put(f"incident/{number}", codec.pack(note))
        except ExchangeBroken as error:
            self._log(warning(f"{error}; only this node's ranks are captured"))
            return False
        return True

    def _gather(
        self,
        number: int,
        deadline_s: float,
        views: dict[int, RankView],
        dumps: tuple[RankDump, ...],
    ) -> tuple[tuple[RankDump, ...], tuple[int, ...]]:
        """Add the other nodes' views to `views`; all dumps, and the nodes that did not answer."""
        patience_s = deadline_s + incident.GATHER_MARGIN_S
        mailbox = self._watched.mailbox
        try:
            remote_views, remote_dumps, silent_nodes = incident.gather(mailbox, number, patience_s)
        except ExchangeBroken as error:
            self._log(warning(str(error)))
            remote_views, remote_dumps = (), ()
            silent_nodes = tuple(each for each in range(mailbox.nodes) if each != mailbox.node)
        if late := sorted(set(silent_nodes) - mailbox.silent):
            self._log(warning(no_answer(late, patience_s)))
        views.update({view.rank: view for view in remote_views})
        views.update(self._remote.without_answer(silent_nodes, patience_s))
        return dumps + remote_dumps, silent_nodes

    def _send_result(self, number: int, result: IncidentResult, on_hang: OnHang | None) -> None:
        note = {"sentence": result.sentence, "action": on_hang.value if on_hang else ""}
        try:
            self._watched.mailbox.put(f"incident/{number}/result", codec.pack(note))
        except ExchangeBroken as error:
            self._log(warning(f"{error}; the other nodes do not learn the verdict"))

    def _wait_until_read(self, number: int, silent_nodes: Sequence[int]) -> None:
        # Were this node to go now, the others would never know.
        mailbox = self._watched.mailbox
        answered = set(range(mailbox.nodes)) - {mailbox.node, *silent_nodes}
        keys = [f"incident/{number}/seen/{node}" for node in sorted(answered)]
        wait_for_notes(mailbox, keys, SEEN_S)
