"""One node's part in the straggler detection of one incarnation of a job; node 0 scores for all."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relkit.errors import BadInputFile
from relkit.launch.job.exchange import Mailbox
from relkit.launch.job.settings import LocalRank, Log
from relkit.launch.straggler.edge_reports import EdgeLooker
from relkit.launch.straggler.exclusion import Exclusion, Order, decode_order, spoken, who_is
from relkit.launch.straggler.poll_interval import Pace
from relkit.launch.straggler.step_ring import StepReceiver, StepSender
from relkit.output import as_json, write_atomic
from relkit.straggler.collect.node_collector import NodeCollector
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.present.report import straggler_report
from relkit.straggler.score.online_scorer import Change, LiveScorer
from relkit.straggler.score.rank_scorer import Settings
from relkit.straggler.step_record import StepRecord, StepSource
from relkit.straggler.transport import control, live_file
from relkit.straggler.transport.control import Control, Mode
from relkit.straggler.transport.history import History, save
from relkit.straggler.transport.locate import KEPT_FILE, LIVE_FILE

# Where the evidence is kept for which a node had to leave.
EXCLUDED = "excluded"
# Between two writings of the file for `watch`, while somebody watches and while nobody does. It
# grows with the job: its writing takes no more than such a share of a core.
_SHOW_EVERY_S, _SHOW_SHARE = 1.0, 0.01
_SELDOM_EVERY_S, _SELDOM_SHARE = 10.0, 0.001
# Evidence from which on a verdict may come at any moment, as a share of what it takes.
_SUSPICIOUS = 0.7
# A job that is slow from the start is to be told of soon.
_FIRST_S = 15.0
# So long a straggler that was named is not named again when it slows down anew.
_QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    """One incarnation of the job as this node sees it.

    Args:
        job_id: the run; world_size: ranks in the job.
        job_dir: folder of the recorder files; None where the job runs without the hook.
        mailbox: to the other nodes, for this thread alone.
        ranks: this node's ranks; host: its name.
        restarts_left: how often workers may be started again.
        holds_store: the server of the rendezvous store is in this launcher.
    """

    job_id: str
    world_size: int
    job_dir: Path | None
    mailbox: Mailbox
    ranks: Sequence[LocalRank]
    host: str = "this host"
    restarts_left: int = 0
    holds_store: bool = False


class NodeSource(StepSource, Protocol):
    """Where the steps of this node come from."""

    @property
    def fill(self) -> float:
        """Share of a rank's ring of operations that the last collect() found new; above 1 some
        were lost.
        """
        ...

    def close(self) -> None:
        """Let go of what is open; the next collect() opens it again."""
        ...


class StragglerNode:
    """Call tick() after `interval_s` or when it `is_called`, close() when the workers are stopped.

    Args:
        scene, job_dir: the incarnation.
        settings: to begin with; `settings` has those that hold now, `order` who is to leave.
        timeline: folder that keeps the evidence.
        say: one line to the terminal.
        least_nodes: fewer must not be left when a node is excluded.
        past: verdicts of earlier incarnations.
        source: makes a NodeSource of a folder of recorder files and this node's name.
    """

    def __init__(
        self,
        scene: Scene,
        job_dir: Path,
        settings: Control,
        timeline: Path,
        say: Log,
        *,
        least_nodes: int = 1,
        past: Sequence[RaisedVerdict] = (),
        source: Callable[[Path, str], NodeSource] = NodeCollector,
    ) -> None:
        self._scene, self._job_dir, self._timeline = scene, job_dir, timeline
        self._say, self.settings = say, settings
        self.order: Order | None = None
        self._collector = source(job_dir, scene.host)
        self._begun = False
        self._looker = EdgeLooker(say)
        self._sender = StepSender(scene.mailbox, scene.host)
        self._others = StepReceiver(scene.mailbox, scene.world_size)
        self._exclusion = Exclusion(least_nodes, scene.mailbox.nodes, scene.restarts_left)
        self._whys: set[str] = set()
        self._aloud: set[str] = set()
        self._quiet_until_s: dict[str, float] = {}
        self._past = tuple(past)
        self._scorer: LiveScorer | None = None
        self._show_at_s = 0.0
        self._asked = False
        self._control_mark = 0
        self._began_s: float | None = None
        self._pace = Pace()
        # Until the next tick() is due, s.
        self.interval_s = self._pace.interval_s
        self._refused = ""

    @property
    def leads(self) -> bool:
        """This is node 0."""
        return self._scene.mailbox.node == 0

    @property
    def ordered_away(self) -> bool:
        """It is this node that is to leave."""
        return self.order is not None and self.order.node == self._scene.mailbox.node

    @property
    def past(self) -> tuple[RaisedVerdict, ...]:
        """All verdicts so far, for the next incarnation."""
        return self._scorer.past() if self._scorer is not None else self._past

    def tick(self, now_s: float) -> None:
        """Look once.

        Args:
            now_s: monotonic time, s.

        Raises:
            ExchangeBroken: the store does not answer.
            RelkitError, OSError: a file cannot be written.
        """
        self._begin()
        self._take_settings(now_s)
        self._see_who_asks()
        if self.settings.mode is Mode.OFF:
            if self._asked and self._scorer is not None and now_s >= self._show_at_s:
                self._show(now_s)
            self.interval_s = self._pace.next_s(fill=0.0, wanted=self._scene.mailbox.nodes > 1)
            return
        records = self._collector.collect(self._scene.ranks)
        sent = self._looker.look(self._scene.ranks, now_s) if self._scene.mailbox.nodes > 1 else ()
        if not self.leads:
            self._sender.send(records, self._collector.notes(), sent)
        else:
            self._others.take(records, 0)
            self._others.edges.add(self._scene.host, sent)
            self._score((*records, *self._others.receive()), now_s)
        if self.order is None and self._scene.mailbox.nodes > 1:
            self.order = decode_order(self._scene.mailbox.get("leave"))
        self.interval_s = self._pace.next_s(fill=self._collector.fill, wanted=self._wanted(now_s))

    @property
    def is_called(self) -> bool:
        """Somebody has come to look, or to change the settings, since the last tick()."""
        if not self.leads:
            return False
        asked = live_file.is_asked(self._job_dir)
        return (asked and not self._asked) or self._control_mark != control.mark(self._job_dir)

    def _see_who_asks(self) -> None:
        asked = self.leads and live_file.is_asked(self._job_dir)
        if asked and not self._asked:
            self._show_at_s = 0.0
        self._asked = asked

    def _wanted(self, now_s: float) -> bool:
        """Somebody waits for what is seen: a person, another node, or a verdict that is near."""
        self._began_s = now_s if self._began_s is None else self._began_s
        if self._asked or self._scene.mailbox.nodes > 1 or now_s - self._began_s < _FIRST_S:
            return True
        return self._scorer is not None and self._scorer.suspicion >= _SUSPICIOUS

    def close(self, now_s: float) -> None:
        """Take what has come since, and write down what was seen, for when the job is over."""
        try:
            if self.leads and self.settings.mode is not Mode.OFF:
                self._score(self._collector.collect(self._scene.ranks), now_s)
            if self.leads and self._scorer is not None and self._scorer.steps:
                self._show(now_s, keep=True, ended=True)
        finally:
            self._collector.close()

    def _begin(self) -> None:
        if self._begun:
            return
        mailbox = self._scene.mailbox
        if mailbox.nodes > 1:
            if self._scene.holds_store:
                mailbox.put(f"store/{mailbox.node}", b"here")
            if self.leads:
                self._tell_settings()
        self._begun = True
        self._say_what_cannot_be()

    def _say_what_cannot_be(self) -> None:
        why = self._exclusion.impossible
        if self.leads and self.settings.mode is Mode.EXCLUDE and why:
            self._say(f"no node can be excluded ({why}): stragglers are only warned about")

    def _tell_settings(self) -> None:
        self._scene.mailbox.put("control", json.dumps(self.settings.to_json()).encode())

    def _take_settings(self, now_s: float) -> None:
        mailbox = self._scene.mailbox
        asked = self.settings
        if self.leads:
            self._control_mark = control.mark(self._job_dir)
            try:
                asked = control.read(self._job_dir, self.settings)
                self._refused = ""
            except BadInputFile as error:
                if str(error) != self._refused:
                    self._refused = str(error)
                    self._say(f"settings not taken: {error}")
        elif (note := mailbox.get("control")) is not None:
            with contextlib.suppress(ValueError, RecursionError):
                asked = control.from_json(json.loads(note), self.settings)
        if asked == self.settings:
            return
        before, self.settings = self.settings, asked
        if before.min_slowdown != asked.min_slowdown and self._scorer is not None:
            self._scorer.retune(_settings(asked))
            self._quiet_until_s.clear()
        if asked.mode is Mode.OFF:
            self._collector.close()
        self._say(f"straggler detection: {asked.mode}, from {asked.min_slowdown:.0%} on")
        if self.leads:
            if mailbox.nodes > 1:
                self._tell_settings()
            self._say_what_cannot_be()
            if self._scorer is not None:
                self._show(now_s)

    def _score(self, records: tuple[StepRecord, ...], now_s: float) -> None:
        if self._scorer is None:
            self._scorer = LiveScorer(
                self._scene.job_id, self._scene.world_size, _settings(self.settings), self._past
            )
        self._scorer.take_traffic(*self._others.edges.take(now_s))
        changes = self._scorer.update(records, now_s)
        for change in changes:
            self._tell(change, now_s)
        for held in self._scorer.holding if self.settings.mode is Mode.EXCLUDE else ():
            if not self._exclusion.done:
                self._exclude(held)
        if changes or now_s >= self._show_at_s:
            self._show(now_s, keep=bool(changes))

    def _tell(self, change: Change, now_s: float) -> None:
        """Say it, unless the same one was said a moment ago: it may come and go."""
        who = who_is(change.raised.verdict, self._others.host_of)
        if change.began and now_s < self._quiet_until_s.get(who, now_s):
            return
        if not change.began and who not in self._aloud:
            return
        if change.began:
            self._aloud.add(who)
            self._quiet_until_s[who] = now_s + _QUIET_S
        else:
            self._aloud.discard(who)
        self._say(spoken(change, self._scene.job_id, self._others.host_of))

    def _exclude(self, held: RaisedVerdict) -> None:
        """Have a node leave, as soon as that is certain enough; why not is said once."""
        order, why = self._exclusion.decide(
            held.verdict, self._others.node_of, self._others.host_of, self._holds_store
        )
        if order is not None:
            # First the evidence: the order ends this incarnation.
            self._keep(self._history(), self._timeline / KEPT_FILE.parent / EXCLUDED)
            self._scene.mailbox.put("leave", order.encode())
        if why not in self._whys:
            self._whys.add(why)
            self._say(f"straggler: {why}")

    def _holds_store(self, node: int) -> bool:
        return self._scene.mailbox.get(f"store/{node}") is not None

    def _history(self, *, ended: bool = False) -> History:
        assert self._scorer is not None
        notes = [*self._collector.notes(), *self._others.notes()]
        if self.settings.mode is Mode.OFF:
            notes.append("switched off by `relkit straggler tune`")
        return self._scorer.history(notes, ended=ended)

    def _show(self, now_s: float, *, keep: bool = False, ended: bool = False) -> None:
        began_s = time.monotonic()
        history = self._history(ended=ended)
        with contextlib.suppress(FileNotFoundError):
            save(history, self._job_dir / LIVE_FILE)
        if keep:
            self._keep(history, self._timeline / KEPT_FILE.parent)
        took_s = time.monotonic() - began_s
        every_s, share = (
            (_SHOW_EVERY_S, _SHOW_SHARE) if self._asked else (_SELDOM_EVERY_S, _SELDOM_SHARE)
        )
        self._show_at_s = now_s + took_s + max(every_s, took_s / share)

    def _keep(self, history: History, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        save(history, folder / KEPT_FILE.name)
        write_atomic(folder / "report.json", as_json(straggler_report(history)))


def _settings(asked: Control) -> Settings:
    return Settings(min_slowdown=asked.min_slowdown)
