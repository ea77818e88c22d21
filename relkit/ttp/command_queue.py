"""Commands of the controller on their way to the thread of a rank that carries them out."""

from __future__ import annotations

import math
import queue
import threading
import time

from relkit.process.interruptible_wait import next_of
from relkit.ttp.messages import Commit, Discard, Exit, Finished, Save

# How late a signal's handler may run in a thread that never goes on, s.
_SLICE_S = 0.5

Command = Save | Commit | Discard | Exit | Finished


class CommandQueue:
    """Commands, and whether the thread that carries them out has nothing to do.

    That is the training thread, once it has left its loop; or a stand-in, where nothing makes it
    leave.
    """

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._parked = False
        self._replaced = False
        self._pending = 0
        self._idle = threading.Event()

    def park(self) -> None:
        """The training thread is here for commands; it never returns if another has its place."""
        with self._lock:
            if not self._replaced:
                self._parked = True
                self._settle()
        if self._replaced:
            while True:
                # In slices, so that signals are handled (see relkit/process/interruptible_wait.py).
                time.sleep(_SLICE_S)

    def unpark(self) -> None:
        """All ranks have finished: the training thread goes on with the user's program."""
        with self._lock:
            self._parked = False
            self._idle.clear()

    def replace_thread(self) -> bool:
        """Another thread takes commands from here on; False where the training thread does."""
        with self._lock:
            if self._parked:
                return False
            self._parked = self._replaced = True
            self._settle()
            return True

    def give(self, command: Command) -> None:
        """Hand over a command; the thread is not idle until that is done."""
        with self._lock:
            self._pending += 1
            self._idle.clear()
            self._commands.put(command)

    def next(self) -> Command:
        """Wait for a command; `done` must be called after it."""
        return next_of(self._commands, math.inf)

    def done(self) -> None:
        """The command is done."""
        with self._lock:
            self._pending -= 1
            self._settle()

    def _settle(self) -> None:
        if self._parked and not self._pending:
            self._idle.set()

    @property
    def is_parked(self) -> bool:
        """The training loop was left, or is not waited for any more."""
        return self._parked

    @property
    def is_replaced(self) -> bool:
        """Another thread has the training thread's place."""
        return self._replaced

    @property
    def is_idle(self) -> bool:
        """Parked, and no command is being carried out."""
        return self._idle.is_set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the thread is parked and idle."""
        return self._idle.wait(timeout_s)
