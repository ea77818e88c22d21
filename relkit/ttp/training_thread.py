"""Gets the training thread out of a blocked collective, or finds that nothing can.

Shutting a connection ends every gloo call that waits on it, but one: a receive of which a part has
arrived. gloo (seen in torch 2.13) takes its buffer off the list of pending receives when the first
bytes come, and tells only those on the list that the connection has ended. If the sender dies in
the middle, the receiver sleeps until the group's timeout (30 minutes), and no error reaches it.
Such a thread changes nothing any more, so that another one can save in its place.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence

from relkit.process import procfs
from relkit.ttp.rank_state import RankState

# Connections are made lazily, so new ones may appear while others are shut: shut them again.
AGAIN_S = 0.02
_EAGER_S = 0.5
_LATER_S = 2.0
_ASLEEP_S = 1.0


class TrainingThread:
    """The thread that runs the training loop, seen from the one that is linked to the controller.

    Args:
        state: of the rank.
        abort: ends the collectives of this process with an error, given descriptors to spare;
            may be called again and again.
    """

    def __init__(self, state: RankState, abort: Callable[[Sequence[int]], int]) -> None:
        self._state, self._abort = state, abort
        self._os_thread_id = 0
        self._eager_until_s = 0.0
        self._next_abort_s = 0.0
        self._asleep_since_s = 0.0
        self._switches = -1

    def is_this_one(self) -> None:
        """To be called by the training thread."""
        self._os_thread_id = threading.get_native_id()

    def begin(self) -> None:
        """A fault, another one, or the end: collectives are to be ended without delay."""
        self._eager_until_s = time.monotonic() + _EAGER_S
        self._next_abort_s = 0.0

    def interrupt(self, keep: Sequence[int]) -> None:
        """Try to end what it is blocked in, and wait for a moment; to be called until it is idle.

        Args:
            keep: descriptors that must stay open.
        """
        now_s = time.monotonic()
        if now_s >= self._next_abort_s:
            self._abort(keep)
            # The hook's request may run on that very thread: later ones leave time to watch it.
            self._next_abort_s = now_s + (AGAIN_S if now_s < self._eager_until_s else _LATER_S)
            self._switches = -1
        self._state.commands.wait_idle(AGAIN_S)

    def is_stuck(self) -> bool:
        """Whether it sleeps, has not run for a second, and is not in an update."""
        if self._state.progress.updating:
            return False
        now_s = time.monotonic()
        facts = None
        with contextlib.suppress(OSError):
            facts = procfs.thread(os.getpid(), self._os_thread_id)
        if facts is None or facts.state != "S" or facts.switches != self._switches:
            self._switches = -1 if facts is None or facts.state != "S" else facts.switches
            self._asleep_since_s = now_s
            return False
        return now_s - self._asleep_since_s >= _ASLEEP_S
