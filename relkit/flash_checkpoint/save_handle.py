"""What a caller gets for a save: whether it has ended, and how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from relkit.errors import DeadlineExceeded
from relkit.process.interruptible_wait import is_set_within

# The longest that anything waits for a save, unless the caller says otherwise, s.
WAIT_S = 1800.0


class SaveHandle:
    """A save that is under way, or has ended.

    Args:
        step: that is saved.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.began_s = time.monotonic()
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._notify: Callable[[Exception], None] | None = None

    @classmethod
    def ended(cls, step: int, failure: Exception | None = None) -> SaveHandle:
        """The handle of a save that has ended already."""
        handle = cls(step)
        handle.end(failure)
        return handle

    @property
    def done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._ended.is_set()

    @property
    def failure(self) -> Exception | None:
        """Why it failed; None while it is under way, and where it succeeded."""
        return self._failure

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Wait until the state is saved.

        Args:
            timeout_s: the longest to wait, s.

        Raises:
            RelkitError: it could not be saved; the previous save is intact.
            DeadlineExceeded: the save is still under way.
        """
        self.wait_end(timeout_s)
        if self._failure is not None:
            raise self._failure

    def wait_end(self, timeout_s: float = WAIT_S) -> None:
        """Wait until the save has ended, successfully or not.

        Raises:
            DeadlineExceeded: the save is still under way.
        """
        if not is_set_within(self._ended, timeout_s):
            raise DeadlineExceeded(
                f"the save of step {self.step} has been under way for"
                f" {time.monotonic() - self.began_s:.0f} s",
                next_step="It goes on; wait longer.",
            )

    def on_failure(self, notify: Callable[[Exception], None]) -> None:
        """Have a function called with the error if the save fails, or has failed."""
        self._notify = notify
        if self.done:
            self._report()

    def _report(self) -> None:
        notify, self._notify = self._notify, None
        if notify is not None and self._failure is not None:
            notify(self._failure)

    def end(self, failure: Exception | None = None) -> None:
        """Called by whoever saves: the save has ended."""
        self._failure = failure
        self._ended.set()
        self._report()
