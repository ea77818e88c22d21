"""Node 0's part in straggler detection: receives the steps of all nodes, scores them, publishes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from relkit.errors import BadInputFile
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import Mailbox
from relkit.launch.job.settings import Log
from relkit.launch.straggler.exclusion import Exclusion
from relkit.launch.straggler.history_publisher import HistoryPublisher
from relkit.launch.straggler.step_ring import StepReceiver
from relkit.launch.straggler.verdict_announcer import MIN_COST_S, VerdictAnnouncer
from relkit.log_lines import Level, Line, warning
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.history_types import RaisedVerdict, Standing
from relkit.straggler.score.online_scorer import OnlineScorer
from relkit.straggler.score.rank_scorer import Settings
from relkit.straggler.step_record import StepRecord, StepSource
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.straggler.transport.history import History

# Evidence from which on a verdict may come at any moment, as a share of what it takes.
_NEAR_VERDICT = 0.7


class StragglerLeader:
    """Call take() with each look of its own node, and close() when the workers are stopped.

    Args:
        attempt, job_dir: what it watches.
        mailbox: to the other nodes.
        settings: those that hold.
        timeline: folder that keeps the evidence.
        log: one line to the terminal.
        min_nodes: fewer must not be left when a node is excluded.
        past: verdicts of earlier attempts.
        local: what was not seen on its own node, and who has the cores there.
    """

    def __init__(
        self,
        attempt: Attempt,
        mailbox: Mailbox,
        job_dir: Path,
        settings: Control,
        timeline: Path,
        log: Log,
        *,
        min_nodes: int,
        past: Sequence[RaisedVerdict],
        local: StepSource,
    ) -> None:
        self._attempt, self._settings, self._log = attempt, settings, log
        self._local, self._mailbox = local, mailbox
        self._past = tuple(past)
        self._scorer: OnlineScorer | None = None
        self._receiver = StepReceiver(mailbox, attempt.world_size)
        self._announcer = VerdictAnnouncer(attempt.job_id, self._receiver.host_of, log)
        self._publisher = HistoryPublisher(job_dir, timeline)
        self._control_file = ControlFile(job_dir, log)
        self._exclusion = Exclusion(min_nodes, mailbox.nodes, attempt.restarts_left)
        # Why nobody was excluded, or who was: each is logged once.
        self._logged: set[str] = set()
        # As of the newest history; None before there is one. Any thread may look.
        self.standing: Standing | None = None

    @property
    def past(self) -> tuple[RaisedVerdict, ...]:
        """All verdicts so far, for the next attempt."""
        return self._scorer.past() if self._scorer is not None else self._past

    @property
    def is_called(self) -> bool:
        """Somebody has come to watch, or to change the settings, since the last look."""
        return self._publisher.is_called or self._control_file.has_changed

    @property
    def is_wanted(self) -> bool:
        """Somebody watches, or a verdict is near."""
        near = self._scorer is not None and self._scorer.max_evidence >= _NEAR_VERDICT
        return self._publisher.is_watched or near

    def begin(self) -> None:
        """Tell the other nodes the settings, and the terminal what cannot be."""
        self._send_settings()
        self._warn_of_impossible_exclusion()

    def asked_settings(self) -> Control:
        """The settings that `relkit straggler tune` asks for."""
        return self._control_file.read(self._settings)

    def retune(self, settings: Control) -> None:
        """Go on with other settings."""
        before, self._settings = self._settings, settings
        if before.min_slowdown != settings.min_slowdown and self._scorer is not None:
            self._scorer.retune(_scorer_settings(settings))
            self._announcer.forget()

    def announce_settings(self, now_s: float) -> None:
        """Tell everybody who needs to know of the settings after retune()."""
        self._send_settings()
        self._warn_of_impossible_exclusion()
        if self._scorer is not None:
            self._publisher.publish(self._history, now_s)

    def look_for_readers(self) -> None:
        """See who watches the job."""
        self._publisher.look_for_readers()

    def serve_readers(self, now_s: float) -> None:
        """While nothing is collected, show who asks what was seen before."""
        publisher = self._publisher
        if publisher.is_watched and self._scorer is not None and publisher.is_due(now_s):
            publisher.publish(self._history, now_s)

    def take(
        self, records: Sequence[StepRecord], sent: Sequence[EdgeTraffic], now_s: float
    ) -> None:
        """Score what this node has seen, and what the others have sent.

        Args:
            records, sent: of this node's ranks; now_s: monotonic time, s.
        """
        self._receiver.take(records, 0)
        self._receiver.edges.add(self._attempt.host, sent)
        self._score((*records, *self._receiver.receive()), now_s)

    def close(self, records: Sequence[StepRecord], now_s: float) -> None:
        """Score the last steps of this node, and write down what was seen."""
        if self._settings.mode is not Mode.OFF:
            self._score(records, now_s)
        self._announcer.end()
        if self._scorer is not None and self._scorer.steps:
            self._publisher.publish(lambda: self._history(ended=True), now_s, keep=True)

    def _score(self, records: Sequence[StepRecord], now_s: float) -> None:
        if self._scorer is None:
            self._scorer = OnlineScorer(
                self._attempt.job_id,
                self._attempt.world_size,
                _scorer_settings(self._settings),
                self._past,
            )
        self._scorer.take_traffic(*self._receiver.edges.take(now_s))
        changes = self._scorer.update(records, now_s)
        self._announcer.announce(changes, self._scorer.holding, now_s)
        for raised in self._scorer.holding if self._settings.mode is Mode.EXCLUDE else ():
            if not self._exclusion.done and raised.verdict.cost_s >= MIN_COST_S:
                self._exclude(raised)
        if changes or self._publisher.is_due(now_s):
            self._publisher.publish(self._history, now_s, keep=bool(changes))

    def _exclude(self, raised: RaisedVerdict) -> None:
        """Have a node leave, as soon as that is certain enough; why not is logged once."""
        order, why = self._exclusion.decide(
            raised.verdict, self._receiver.node_of, self._receiver.host_of, self._holds_store
        )
        if order is not None:
            # First the evidence: the order ends this attempt.
            self._publisher.keep_exclusion(self._history())
            self._mailbox.put("leave", order.encode())
        if why not in self._logged:
            self._logged.add(why)
            level = Level.WARNING if order is None else Level.ERROR
            self._log(Line(f"straggler: {why}", level, "straggler"))

    def _holds_store(self, node: int) -> bool:
        return self._mailbox.get(f"store/{node}") is not None

    def _history(self, *, ended: bool = False) -> History:
        assert self._scorer is not None
        notes = [*self._local.notes(), *self._receiver.notes()]
        loads = dict(self._receiver.loads)
        if self._local.load is not None:
            loads[self._attempt.host] = self._local.load
        if self._settings.mode is Mode.OFF:
            notes.append("switched off by `relkit straggler tune`")
        history = self._scorer.history(notes, loads, ended=ended)
        self.standing = Standing.of(history)
        return history

    def _send_settings(self) -> None:
        if self._mailbox.nodes > 1:
            plain = json.dumps(self._settings.to_json())
            self._mailbox.put("control", plain.encode())

    def _warn_of_impossible_exclusion(self) -> None:
        why = self._exclusion.impossible
        if self._settings.mode is Mode.EXCLUDE and why:
            line = f"no node can be excluded ({why}): stragglers are only reported"
            self._log(warning(line))


def _scorer_settings(settings: Control) -> Settings:
    return Settings(min_slowdown=settings.min_slowdown)


class ControlFile:
    """In a job's folder; what cannot be read is refused, once, and changes nothing.

    Args:
        job_dir: the job's shared-memory folder; log: one line to the terminal.
    """

    def __init__(self, job_dir: Path, log: Log) -> None:
        self._job_dir, self._log = job_dir, log
        self._mark = 0
        self._refused = ""

    @property
    def has_changed(self) -> bool:
        """Other settings have been asked for since the last read()."""
        return self._mark != control.mark(self._job_dir)

    def read(self, settings: Control) -> Control:
        """The settings that are asked for; those that hold where nobody has asked."""
        self._mark = control.mark(self._job_dir)
        try:
            asked = control.read(self._job_dir, settings)
        except BadInputFile as error:
            if str(error) != self._refused:
                self._refused = str(error)
                self._log(f"settings not taken: {error}")
            return settings
        self._refused = ""
        return asked
