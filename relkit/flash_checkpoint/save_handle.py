"""What a caller gets for a save: whether it has ended, and how; and all saves of this process.

A load waits for those that this process has begun, whichever of its checkpointers did:

    save_checkpoint(7, state)
    load_checkpoint()  # step 7, although the copy, or the disk, takes its time

They are kept by the folder of the checkpoints on disk. What has ended well is forgotten, and of
those that failed, the newest is kept, for whoever loads an older step instead.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relkit.errors import DeadlineExceeded
from relkit.process.interruptible_wait import is_set_within

# The longest that anything waits for a save, unless the caller says otherwise, s.
WAIT_S = 1800.0
_MAX_REASON = 300


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


@dataclass(frozen=True, slots=True)
class Waited:
    """How the saves of a process ended.

    Args:
        late: why one of them is not waited for any longer; "" where all have ended.
        step: the newest that could not be saved; -1 where there is none.
        why: reason; "" where there is none.
    """

    late: str = ""
    step: int = -1
    why: str = ""

    def plain(self) -> list[Any]:
        """As JSON."""
        return [self.late, self.step, self.why]


@dataclass(slots=True)
class OwnSaves:
    """The saves of this process to one folder of checkpoints, in memory and on disk."""

    _under_way: list[SaveHandle] = field(default_factory=list)
    _failed: tuple[int, str] = (-1, "")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, save: SaveHandle) -> None:
        """A save has begun, or has ended already."""
        with self._lock:
            self._under_way.append(save)
            self._forget_ended()

    def wait_end(self, timeout_s: float) -> Waited:
        """Wait until all have ended, successfully or not.

        Args:
            timeout_s: the longest to wait, for all of them together, s.
        """
        end_s, late = time.monotonic() + timeout_s, ""
        for save in tuple(self._under_way):
            try:
                save.wait_end(max(0.0, end_s - time.monotonic()))
            except DeadlineExceeded as error:
                late = late or str(error)
        with self._lock:
            self._forget_ended()
        return Waited(late, *self._failed)

    def _forget_ended(self) -> None:
        for save in self._under_way:
            # Words only: an error's traceback would keep the state that was saved.
            if save.done and save.failure is not None and save.step >= self._failed[0]:
                why = str(save.failure) or type(save.failure).__name__
                self._failed = save.step, why[:_MAX_REASON]
        self._under_way = [save for save in self._under_way if not save.done]


_of_folders: dict[tuple[int, Path], OwnSaves] = {}


def own_saves(root: Path) -> OwnSaves:
    """The saves of this process to a folder; a forked child has none of its parent's.

    Args:
        root: folder of the checkpoints on disk.
    """
    return _of_folders.setdefault((os.getpid(), Path(os.path.realpath(root))), OwnSaves())
