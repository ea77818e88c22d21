"""Persists a job's slots when something happens to it: a thread per attempt of the job.

A node that notices something leaves a note. Node 0 looks for such notes and begins a round, in
which all launchers take part; see persist_round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from relkit.errors import RelkitError
from relkit.launch.flash_checkpoint.node_slots import SlotSource
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.persist_request import PersistRequest
from relkit.launch.flash_checkpoint.persist_round import (
    NODE_0_SILENT,
    PersistRound,
    PersistSettings,
    round_key,
)
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, wait_for_thread
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.process.interruptible_wait import is_set_within

# How often a node looks for notes of others.
LOOK_S = 1.0
# How long the host of the store stays, so that the others can read the result.
_STAY_S = 5.0
_CLOSING_LOOK_S = 0.1
_MAX_ERROR_CHARS = 500

# Gets the outcome, with the job's id, on node 0.
Publish = Callable[[PersistOutcome, str], None]


@dataclass(frozen=True, slots=True)
class _Closing:
    """The attempt is over: how long its persister still works.

    Args:
        began_s: when that was, on the monotonic clock.
        linger_s: for so long it looks for notes of other nodes.
        give_up_s: for so long it waits for an answer to a request of this node.
    """

    began_s: float
    linger_s: float
    give_up_s: float

    def may_end(self, *, is_pending: bool) -> bool:
        """Nothing is left to wait for, or it was waited for long enough."""
        waited_s = time.monotonic() - self.began_s
        return waited_s >= (max(self.linger_s, self.give_up_s) if is_pending else self.linger_s)


class Persister:
    """Has the slots of one attempt persisted, once for each time that somebody asks.

    Args:
        attempt, settings: see there.
        mailbox: to the other nodes.
        slots: of this node.
        one_at_a_time: shared with the persisters of other attempts in this process.
        publish: see Publish.
        log: writes one line to the terminal.
    """

    def __init__(
        self,
        attempt: Attempt,
        mailbox: Mailbox,
        slots: SlotSource,
        settings: PersistSettings,
        one_at_a_time: threading.Lock,
        publish: Publish,
        log: Log,
    ) -> None:
        self._attempt, self._mailbox = attempt, mailbox
        self._slots, self._settings = slots, settings
        self._one_at_a_time, self._publish, self._log = one_at_a_time, publish, log
        self._wake = threading.Event()
        self._requests = OwnRequests()
        # By node, the newest request that needs no further round; node 0 keeps it.
        self._handled: dict[int, int] = {}
        # The newest step of this node when a round last looked; -2 before the first round.
        self._last_newest = -2
        # The same of the round under way, once it has locked the slots; -2 outside of rounds.
        self._locked_newest = -2
        self._last: PersistRound | None = None
        self._closing: _Closing | None = None
        self._thread = threading.Thread(target=self._run, name="relkit-flash-persist", daemon=True)
        self._thread.start()

    def ask(self, trigger: str, by_ttp: SavedStep | None = None) -> None:
        """Something happened to the job: have its slots persisted. Returns at once.

        Args:
            trigger: what happened.
            by_ttp: what try-to-persist has saved since.
        """
        # All nodes notice the same fault, and this one may do so while it writes the step already.
        is_collected = by_ttp is None and self._slots.newest() <= self._locked_newest
        self._requests.add(trigger, by_ttp, is_collected=is_collected)
        self._wake.set()

    def wait_collected(self, timeout_s: float) -> None:
        """Wait until the slots that were asked for are locked, as they are about to change."""
        self._requests.wait_collected(timeout_s)

    def close(self, *, is_restart: bool = False) -> None:
        """End the thread after what is under way. Does not wait for it; see `wait_end`.

        Args:
            is_restart: the job goes on: stay until another node's note would have been seen.
        """
        if self._closing is None:
            linger_s = 3 * LOOK_S if is_restart and self._mailbox.nodes > 1 else 0.0
            give_up_s = self._settings.answer_s + 2 * LOOK_S
            self._closing = _Closing(time.monotonic(), linger_s, give_up_s)
        self._wake.set()

    def wait_end(self) -> None:
        """Wait until the thread has ended, which has a deadline."""
        mailbox = self._mailbox
        wait_for_thread(self._thread, mailbox, _STAY_S)
        if self._thread.is_alive():
            self._log("flash checkpoint: the newest step in memory is being written to disk")
        wait_for_thread(
            self._thread, mailbox, self._settings.timeout_s + 4 * self._settings.answer_s
        )

    def _run(self) -> None:
        mailbox = self._mailbox
        look_s = LOOK_S * (1 + mailbox.nodes // 200)
        logged: set[type[Exception]] = set()
        while not self._may_end():
            if self._closing is not None:
                time.sleep(_CLOSING_LOOK_S)
            else:
                self._wake.wait(look_s if mailbox.nodes > 1 else None)
                self._wake.clear()
            is_pending = self._requests.is_pending
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  logged; without this thread nothing persists
                # A store that does not answer matters only to a node that has asked for something.
                if is_pending or not isinstance(error, ExchangeBroken):
                    self._log_once(error, logged)
        if self._attempt.holds_store and self._last is not None:
            self._last.wait_until_seen(_STAY_S)

    def _log_once(self, error: Exception, logged: set[type[Exception]]) -> None:
        # Once for each kind: what fails at one look fails at the next one, too.
        if type(error) not in logged:
            logged.add(type(error))
            self._log(warning(f"flash checkpoint: nothing was persisted: {_line(error)}"))

    def _may_end(self) -> bool:
        is_pending = self._requests.is_pending
        if self._closing is None or not self._closing.may_end(is_pending=is_pending):
            return False
        if is_pending:
            self._log(warning(NODE_0_SILENT))
        return True

    def _look(self) -> None:
        self._leave_note()
        mailbox, requests = self._mailbox, self._requests
        if mailbox.node == 0:
            self._lead_if_asked()
            return
        if mailbox.get(round_key(self._next_number())) is not None:
            noted, newest = requests.noted, self._slots.newest()
            try:
                line = self._next_round().follow(lambda: self._mark_collected(newest))
            finally:
                self._locked_newest = -2
            if requests.is_pending:
                self._log(line)
            self._last_newest = newest
            requests.answer(noted)
        elif requests.is_pending:
            requests.answer(int(mailbox.get(_handled_key(mailbox.node)) or b"0"))

    def _leave_note(self) -> None:
        request = self._requests.next_to_note()
        if request is None:
            return
        if request.by_ttp is None and self._slots.newest() <= self._last_newest:
            # Another node has asked before, and nothing is newer here since.
            self._requests.note(request.number)
            self._requests.answer(request.number)
            return
        mailbox = self._mailbox
        mailbox.put(_asked_key(mailbox.node), request.to_note())
        self._requests.note(request.number)

    def _lead_if_asked(self) -> None:
        requests = self._requests_of_all()
        new = {n: r for n, r in requests.items() if r.number > self._handled.get(n, 0)}
        if not new:
            return
        trigger = next(iter(new.values())).trigger
        saved = [request.by_ttp for request in new.values() if request.by_ttp is not None]
        by_ttp = max(saved, key=lambda step: step.step, default=None)
        newest = self._slots.newest()
        if newest <= self._last_newest and by_ttp is None:
            # Nothing is newer on this node since the last round, so no step of all ranks is.
            for node, request in new.items():
                self._mailbox.put(_handled_key(node), str(request.number).encode())
            self._note_handled(requests)
            return
        try:
            with self._one_at_a_time:
                outcome = self._next_round().lead(
                    trigger, by_ttp, lambda: self._mark_collected(newest)
                )
            self._publish(outcome, self._attempt.job_id)
        finally:
            self._last_newest, self._locked_newest = newest, -2
            self._note_handled(requests)

    def _mark_collected(self, newest: int) -> None:
        self._locked_newest = newest
        self._requests.mark_collected()

    def _note_handled(self, requests: dict[int, PersistRequest]) -> None:
        self._handled = {node: request.number for node, request in requests.items()}
        self._requests.answer(self._handled.get(0, 0))

    def _requests_of_all(self) -> dict[int, PersistRequest]:
        """By node, the newest request; what is not one is passed over."""
        requests = {}
        for node in range(self._mailbox.nodes):
            note = self._mailbox.get(_asked_key(node))
            if note is not None:
                with suppress(ValueError, KeyError, TypeError):
                    requests[node] = PersistRequest.from_note(note)
        return requests

    def _next_number(self) -> int:
        return 1 if self._last is None else self._last.number + 1

    def _next_round(self) -> PersistRound:
        self._last = PersistRound(
            self._next_number(),
            self._mailbox,
            self._attempt.world_size,
            self._slots,
            self._settings,
        )
        return self._last


def _line(error: Exception) -> str:
    if isinstance(error, (RelkitError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]


def _asked_key(node: int) -> str:
    """The note by which a node asks for a round."""
    return f"asked/{node}"


def _handled_key(node: int) -> str:
    """The note that what a node has asked for needs no further round."""
    return f"handled/{node}"


class OwnRequests:
    """Which request was made last, left as a note last, and answered last.

    The agent makes them; the persister's thread notes and answers them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = PersistRequest(0, "")
        self._noted = self._answered = 0
        self._collected = threading.Event()

    def add(self, trigger: str, by_ttp: SavedStep | None, *, is_collected: bool = False) -> None:
        """Make a request.

        Args:
            trigger: what happened to the job; by_ttp: what try-to-persist has saved since.
            is_collected: a round that is under way has locked all that it is about.
        """
        with self._lock:
            self._newest = self._newest.next(trigger, by_ttp)
            if not is_collected:
                self._collected.clear()

    @property
    def is_pending(self) -> bool:
        """A request has not been answered yet."""
        return self._newest.number > self._answered

    @property
    def noted(self) -> int:
        """The number of the request that was left as a note last."""
        return self._noted

    def next_to_note(self) -> PersistRequest | None:
        """The newest request, which stands for the ones before; None once it has been noted."""
        newest = self._newest
        return newest if newest.number > self._noted else None

    def note(self, number: int) -> None:
        """A request has been left as a note, or needs none."""
        self._noted = number

    def answer(self, number: int) -> None:
        """The requests up to this one need no further round."""
        with self._lock:
            self._answered = max(self._answered, number)
            if not self.is_pending:
                self._collected.set()

    def mark_collected(self) -> None:
        """The slots that were asked for are locked."""
        self._collected.set()

    def wait_collected(self, timeout_s: float) -> None:
        """Wait until the slots that were asked for are locked, or need not be.

        Args:
            timeout_s: the longest to wait, s.
        """
        if self.is_pending:
            is_set_within(self._collected, timeout_s)
