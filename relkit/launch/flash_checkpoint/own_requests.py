"""The requests of this node in one attempt of the job, and how far each has come."""

from __future__ import annotations

import threading

from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.persist_request import PersistRequest
from relkit.process.interruptible_wait import is_set_within


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
