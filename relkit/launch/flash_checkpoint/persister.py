"""Persists a job's slots when something happens to it: a thread per attempt of the job.

A node that notices something leaves a note. Node 0 looks for such notes and begins a round, in
which all launchers take part; see persist_round.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from relkit.errors import RelkitError
from relkit.foreign_json import parse_json
from relkit.interruptible_wait import is_set_within
from relkit.launch.flash_checkpoint.node_slots import SlotSource
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.persist_round import PersistRound, PersistSettings, round_key
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, wait_for_thread
from relkit.launch.job.settings import Log

# How often a node looks for notes of others.
LOOK_S = 1.0
# How long the host of the store stays, so that the others can read the result.
_STAY_S = 5.0
_MAX_SENTENCE = 500
_CLOSING_LOOK_S = 0.1
# Number of the request, what happened, what try-to-persist has saved.
_Request = tuple[int, str, SavedStep | None]


@dataclass(frozen=True, slots=True)
class PersistedAttempt:
    """One attempt of the job, as this node sees it.

    Args:
        job_id: of the launcher; world_size: ranks of the job.
        mailbox: to the other nodes.
        slots: of this node.
        holds_store: this launcher hosts the store of the mailbox.
    """

    job_id: str
    world_size: int
    mailbox: Mailbox
    slots: SlotSource
    holds_store: bool = False


class Persister:
    """Has the slots of one attempt persisted, once for each time that somebody asks.

    Args:
        attempt, settings: see there.
        one_at_a_time: shared with the persisters of other attempts in this process.
        publish: gets the outcome, on node 0.
        log: writes one line to the terminal.
    """

    def __init__(
        self,
        attempt: PersistedAttempt,
        settings: PersistSettings,
        one_at_a_time: threading.Lock,
        publish: Callable[[PersistOutcome, str], None],
        log: Log,
    ) -> None:
        self._attempt, self._settings, self._one_at_a_time = attempt, settings, one_at_a_time
        self._publish, self._log = publish, log
        self._lock = threading.Lock()
        self._wake, self._collected = threading.Event(), threading.Event()
        # Requests of this node: how many were made, left as a note, and answered by a round.
        self._asked = self._noted = self._answered = 0
        self._trigger = ""
        self._by_ttp: SavedStep | None = None
        self._round = 0
        self._handled: dict[int, int] = {}
        # The newest step of this node when a round last looked; -2 before the first round.
        self._last_newest = -2
        self._last: PersistRound | None = None
        self._close_s = self._linger_s = 0.0
        self._thread = threading.Thread(target=self._run, name="relkit-flash-persist", daemon=True)
        self._thread.start()

    def ask(self, trigger: str, by_ttp: SavedStep | None = None) -> None:
        """Something happened to the job: have its slots persisted. Returns at once.

        Args:
            trigger: what happened.
            by_ttp: what try-to-persist has saved since.
        """
        with self._lock:
            self._asked += 1
            self._trigger, self._by_ttp = trigger[:_MAX_SENTENCE], by_ttp
            self._collected.clear()
        self._wake.set()

    def wait_collected(self, timeout_s: float) -> None:
        """Wait until the slots that were asked for are locked, as they are about to change."""
        if self._asked > self._answered:
            is_set_within(self._collected, timeout_s)

    def close(self, *, is_restart: bool = False) -> None:
        """End the thread after what is under way. Does not wait for it; see `wait_end`.

        Args:
            is_restart: the job goes on: stay until another node's note would have been seen.
        """
        if not self._close_s:
            self._linger_s = 3 * LOOK_S if is_restart and self._attempt.mailbox.nodes > 1 else 0.0
            self._close_s = time.monotonic()
        self._wake.set()

    def wait_end(self) -> None:
        """Wait until the thread has ended, which has a deadline."""
        mailbox = self._attempt.mailbox
        wait_for_thread(self._thread, mailbox, _STAY_S)
        if self._thread.is_alive():
            self._log("flash checkpoint: the newest step in memory is being written to disk")
        wait_for_thread(
            self._thread, mailbox, self._settings.timeout_s + 4 * self._settings.answer_s
        )

    def _run(self) -> None:
        mailbox = self._attempt.mailbox
        look_s = LOOK_S * (1 + mailbox.nodes // 200)
        complained = False
        while not self._may_end():
            if self._close_s:
                time.sleep(_CLOSING_LOOK_S)
            else:
                self._wake.wait(look_s if mailbox.nodes > 1 else None)
                self._wake.clear()
            is_pending = self._asked > self._answered
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  whatever it is, the job goes on
                # A store that does not answer matters only to a node that has asked for something.
                if not complained and (is_pending or not isinstance(error, ExchangeBroken)):
                    complained = True
                    self._log(f"flash checkpoint: nothing was persisted: {_line(error)}")
        if self._attempt.holds_store and self._last is not None:
            self._last.wait_until_seen(_STAY_S)

    def _may_end(self) -> bool:
        if not self._close_s:
            return False
        waited_s = time.monotonic() - self._close_s
        if waited_s < self._linger_s:
            return False
        if self._asked > self._answered and waited_s < self._settings.answer_s + 2 * LOOK_S:
            return False
        if self._asked > self._answered:
            self._log(
                "flash checkpoint: node 0 does not answer; it is not known which step is kept"
            )
        return True

    def _look(self) -> None:
        self._leave_note()
        mailbox = self._attempt.mailbox
        if mailbox.node == 0:
            self._lead_if_asked()
            return
        if mailbox.get(round_key(self._round + 1)) is not None:
            asked, newest = self._noted, self._attempt.slots.newest()
            line = self._next_round().follow(self._collected.set)
            if self._asked > self._answered:
                self._log(line)
            self._last_newest = newest
            self._answer(asked)
        elif self._asked > self._answered:
            handled = mailbox.get(_handled_key(mailbox.node)) or b"0"
            self._answer(int(handled))

    def _leave_note(self) -> None:
        with self._lock:
            asked, trigger, by_ttp = self._asked, self._trigger, self._by_ttp
        if asked == self._noted:
            return
        if by_ttp is None and self._attempt.slots.newest() <= self._last_newest:
            # Another node has asked before, and nothing is newer here since.
            self._noted = asked
            self._answer(asked)
            return
        ttp = None if by_ttp is None else [by_ttp.step, by_ttp.where]
        note = {"number": asked, "trigger": trigger, "ttp": ttp}
        mailbox = self._attempt.mailbox
        mailbox.put(f"asked/{mailbox.node}", json.dumps(note).encode())
        self._noted = asked

    def _lead_if_asked(self) -> None:
        requests = self._requests()
        new = {n: r for n, r in requests.items() if r[0] > self._handled.get(n, 0)}
        if not new:
            return
        trigger = next(iter(new.values()))[1]
        saved = [request[2] for request in new.values() if request[2] is not None]
        by_ttp = max(saved, key=lambda step: step.step, default=None)
        newest = self._attempt.slots.newest()
        if newest <= self._last_newest and by_ttp is None:
            # Nothing is newer on this node since the last round, so no step of all ranks is.
            for node, request in new.items():
                self._attempt.mailbox.put(_handled_key(node), str(request[0]).encode())
            self._note_handled(requests)
            return
        try:
            with self._one_at_a_time:
                outcome = self._next_round().lead(trigger, by_ttp, self._collected.set)
            self._publish(outcome, self._attempt.job_id)
        finally:
            self._last_newest = newest
            self._note_handled(requests)

    def _note_handled(self, requests: dict[int, _Request]) -> None:
        self._handled = {node: request[0] for node, request in requests.items()}
        self._answer(self._handled.get(0, 0))

    def _answer(self, number: int) -> None:
        self._answered = max(self._answered, number)
        if self._answered >= self._asked:
            self._collected.set()

    def _requests(self) -> dict[int, _Request]:
        requests = {}
        for node in range(self._attempt.mailbox.nodes):
            note = self._attempt.mailbox.get(f"asked/{node}")
            try:
                plain = parse_json(note or b"null")
                saved = plain["ttp"]
                ttp = None if saved is None else SavedStep(int(saved[0]), str(saved[1]))
                requests[node] = (int(plain["number"]), str(plain["trigger"])[:_MAX_SENTENCE], ttp)
            except (ValueError, KeyError, TypeError):
                continue
        return requests

    def _next_round(self) -> PersistRound:
        attempt = self._attempt
        self._round += 1
        self._last = PersistRound(
            self._round, attempt.mailbox, attempt.world_size, attempt.slots, self._settings
        )
        return self._last


def _line(error: Exception) -> str:
    if isinstance(error, (RelkitError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}"[:_MAX_SENTENCE]


def _handled_key(node: int) -> str:
    """The note that what a node has asked for needs no further round."""
    return f"handled/{node}"
