"""One node's part in the straggler detection of one attempt of a job: it collects and sends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import Mailbox
from relkit.launch.job.settings import Log
from relkit.launch.straggler.edge_reports import EdgeLooker
from relkit.launch.straggler.exclusion import Order, decode_order
from relkit.launch.straggler.poll_interval import PollInterval
from relkit.launch.straggler.step_ring import StepSender
from relkit.launch.straggler.straggler_leader import StragglerLeader
from relkit.straggler.collect.node_collector import NodeCollector
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.step_record import StepSource
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.text.foreign_json import parse_json

# A job that is slow from the start is to be reported soon.
_FIRST_S = 15.0


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

    `settings` are those that hold now, `order` says who is to leave, and `leader` is the part of
    node 0, None on the others.

    Args:
        attempt, job_dir: what it watches.
        mailbox: to the other nodes, for this thread alone.
        settings: to begin with.
        timeline: folder that keeps the evidence.
        log: one line to the terminal.
        min_nodes: fewer must not be left when a node is excluded.
        past: verdicts of earlier attempts.
        source: makes a NodeSource of a folder of recorder files and this node's name.
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
        min_nodes: int = 1,
        past: Sequence[RaisedVerdict] = (),
        source: Callable[[Path, str], NodeSource] = NodeCollector,
    ) -> None:
        self._attempt, self._mailbox = attempt, mailbox
        self._log, self.settings = log, settings
        self.order: Order | None = None
        self._collector = source(job_dir, attempt.host)
        self._looker = EdgeLooker(log)
        self._sender = StepSender(mailbox, attempt.host)
        self._poll_interval = PollInterval()
        self._begun = False
        self._first_look_s: float | None = None
        self._past = tuple(past)
        self.leader: StragglerLeader | None = None
        if mailbox.node == 0:
            self.leader = StragglerLeader(
                attempt, mailbox, job_dir, settings, timeline, log,
                min_nodes=min_nodes, past=past, local=self._collector,
            )  # fmt: skip

    @property
    def interval_s(self) -> float:
        """Until the next tick() is due, s."""
        return self._poll_interval.interval_s

    @property
    def ordered_away(self) -> bool:
        """It is this node that is to leave."""
        return self.order is not None and self.order.node == self._mailbox.node

    @property
    def past(self) -> tuple[RaisedVerdict, ...]:
        """All verdicts so far, for the next attempt."""
        return self.leader.past if self.leader is not None else self._past

    @property
    def is_called(self) -> bool:
        """Somebody has come to look, or to change the settings, since the last tick()."""
        return self.leader is not None and self.leader.is_called

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
        several_nodes = self._mailbox.nodes > 1
        if self.leader is not None:
            self.leader.look_for_readers()
        if self.settings.mode is Mode.OFF:
            if self.leader is not None:
                self.leader.serve_readers(now_s)
            self._poll_interval.next_s(fill=0.0, wanted=several_nodes)
            return
        records = self._collector.collect(self._attempt.ranks)
        sent = self._looker.look(self._attempt.ranks, now_s) if several_nodes else ()
        if self.leader is None:
            self._sender.send(records, self._collector.notes(), sent, self._collector.load)
        else:
            self.leader.take(records, sent, now_s)
        if self.order is None and several_nodes:
            self.order = decode_order(self._mailbox.get("leave"))
        self._poll_interval.next_s(fill=self._collector.fill, wanted=self._is_wanted(now_s))

    def close(self, now_s: float) -> None:
        """Take what has come since, and write down what was seen, for when the job is over."""
        try:
            if self.leader is not None:
                off = self.settings.mode is Mode.OFF
                records = () if off else self._collector.collect(self._attempt.ranks)
                self.leader.close(records, now_s)
        finally:
            self._collector.close()

    def _is_wanted(self, now_s: float) -> bool:
        """Somebody waits for what is seen: a person, another node, or a verdict that is near."""
        self._first_look_s = now_s if self._first_look_s is None else self._first_look_s
        if self._mailbox.nodes > 1 or now_s - self._first_look_s < _FIRST_S:
            return True
        return self.leader is not None and self.leader.is_wanted

    def _begin(self) -> None:
        if self._begun:
            return
        mailbox = self._mailbox
        if mailbox.nodes > 1 and self._attempt.holds_store:
            mailbox.put(f"store/{mailbox.node}", b"here")
        if self.leader is not None:
            self.leader.begin()
        self._begun = True

    def _take_settings(self, now_s: float) -> None:
        asked = self.settings
        if self.leader is not None:
            asked = self.leader.asked_settings()
        elif (note := self._mailbox.get("control")) is not None:
            with contextlib.suppress(ValueError):
                asked = control.from_json(parse_json(note), self.settings)
        if asked == self.settings:
            return
        self.settings = asked
        if self.leader is not None:
            self.leader.retune(asked)
        if asked.mode is Mode.OFF:
            self._collector.close()
        self._log(f"straggler detection: {asked.mode}, minimum slowdown {asked.min_slowdown:.0%}")
        if self.leader is not None:
            self.leader.announce_settings(now_s)
