"""The thread in each rank that is linked to the controller."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from relkit.ttp.environment import ControllerAccess
from relkit.ttp.link import Endpoint, Link, LinkEnded, connect
from relkit.ttp.messages import (
    Commit,
    Discard,
    Done,
    Exit,
    FaultNotice,
    Finished,
    Heartbeat,
    Hello,
    Message,
    Note,
    Pause,
    Raised,
    Save,
    State,
)
from relkit.ttp.rank_state import RankState
from relkit.ttp.relay import Notes
from relkit.ttp.save_outcome import EXIT_REFUSED
from relkit.ttp.training_thread import AGAIN_S, TrainingThread

# A controller that all ranks of a large job come to at once has no place for all of them.
_START_S = 60.0
_BACKUP_S = 10.0
# How long a thread that was told to leave may take: in the user's code, and in a command of ours.
_LEAVE_S = 5.0
_LEAVE_BUSY_S = 60.0


class Processor:
    """Heartbeats out, commands in; frees the training thread where a fault has it blocked.

    Args:
        wire: see ControllerAccess.
        hello: what this rank says of itself; its step is taken from the state.
        state: shared with the training thread.
        training: the thread that runs the training loop.
        stand_in: starts a thread that carries out commands in the place of the training thread.

    Attributes:
        epoch: the plan that is valid; commands of another are not to be carried out.
        notes: what other members of the save have left.
    """

    def __init__(
        self,
        wire: ControllerAccess,
        hello: Hello,
        state: RankState,
        training: TrainingThread,
        stand_in: Callable[[], None],
    ) -> None:
        self._wire, self._hello, self._state = wire, hello, state
        self._training, self._stand_in = training, stand_in
        self._link: Link | None = None
        self._place = 0
        self.epoch = 0
        self.notes = Notes()
        self._state_due = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relkit-ttp", daemon=True)

    def start(self) -> None:
        """Register with the controller, or with a backup.

        Raises:
            LinkEnded: there is none.
        """
        self._link = self._connect(self._wire.endpoints[0], _START_S)
        self._thread.start()

    def raised(self, sentence: str) -> None:
        """The training code raised an exception."""
        self.answer(Raised(self._hello.rank, sentence[:500]))

    def done(self) -> None:
        """Training has ended well here; the others may still need this rank's shards."""
        self.answer(Done(self._hello.rank))

    def answer(self, message: Message) -> None:
        """Send something; from any thread."""
        link = self._link
        try:
            if link is not None:
                link.send(message)
        except LinkEnded:
            # The thread notices by itself, and looks for a backup.
            return

    def close(self) -> None:
        """Nobody is led any more."""
        self._closing = True
        self._thread.join(2.0)
        if self._link is not None:
            self._link.close()

    def _connect(self, endpoint: Endpoint, timeout_s: float) -> Link:
        link = connect(endpoint, self._wire.secret, self._wire.attempt, timeout_s)
        link.send(replace(self._hello, step=self._state.progress.step, epoch=self.epoch))
        return link

    def _run(self) -> None:
        beat_s = 0.0
        while not self._closing:
            assert self._link is not None
            now_s = time.monotonic()
            if now_s >= beat_s:
                progress = self._state.progress
                beat_s = now_s + self._wire.heartbeat_s
                self.answer(
                    Heartbeat(self._hello.rank, progress.step, progress.phase, self._state.step_s)
                )
            try:
                waiting_s = AGAIN_S if self._state_due else beat_s - now_s
                message = self._link.receive(max(0.0, min(waiting_s, 0.2)))
            except LinkEnded:
                if not self._closing:
                    self._look_for_a_backup()
                continue
            if message is not None:
                self._obey(message)
            if self._state_due:
                self._send_state()

    def _obey(self, message: Message) -> None:
        if isinstance(message, FaultNotice):
            self.epoch, self._state_due = message.epoch, True
            self.notes.begin(message.epoch)
            self._training.begin()
            self._state.fault = True
        elif isinstance(message, Pause):
            self.epoch, self._state_due = message.epoch, True
            self.notes.begin(message.epoch)
            self._state.pause_at = message.at_step
        elif isinstance(message, Note):
            self.notes.put(message.epoch, message.key, bytes.fromhex(message.data))
        elif isinstance(message, Exit):
            self._leave(message)
        elif isinstance(message, Save | Commit | Discard):
            self._state.commands.give(message)
        elif isinstance(message, Finished):
            self._closing = True
            self._state.commands.give(message)

    def _send_state(self) -> None:
        if not self._state.commands.is_idle and self._state.fault:
            self._training.interrupt([self._link.fileno()] if self._link else [])
            if self._training.is_stuck() and self._state.replace_thread():
                self._stand_in()
        if self._state.commands.is_idle:
            self._state_due = False
            self.answer(State(self._hello.rank, self.epoch, self._state.survivor()))

    def _look_for_a_backup(self) -> None:
        """The controller is gone: go to the next one, or end with the job."""
        if self._link is not None:
            self._link.close()
        while self._place + 1 < len(self._wire.endpoints):
            self._place += 1
            try:
                self._link = self._connect(self._wire.endpoints[self._place], _BACKUP_S)
            except LinkEnded:
                continue
            if self._state.progress.phase == "done":
                self.done()
            return
        self._leave(Exit(EXIT_REFUSED, "the launcher is gone and no backup controller answers"))

    def _leave(self, command: Exit) -> None:
        """Have the training thread end this process, or end it from here."""
        self._closing = True
        self._training.begin()
        self._state.fault = True
        # Whoever waits for a member of the save gets an error.
        self.notes.begin(self.epoch + 1)
        self._state.commands.give(command)
        now_s = time.monotonic()
        until_s, until_busy_s = now_s + _LEAVE_S, now_s + _LEAVE_BUSY_S
        while not self._state.gone:
            if time.monotonic() > (until_busy_s if self._state.commands.is_parked else until_s):
                # It is in a loop that no error reaches. Its output may hold a lock: no flush.
                os._exit(command.code)
            self._training.interrupt([])
            time.sleep(AGAIN_S)
