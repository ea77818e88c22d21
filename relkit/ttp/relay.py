"""A torch store without a server: the controller passes on what one member of a save stores.

The members of an emergency save form a new gloo group, and gloo needs a store to exchange
addresses. The job's own store cannot be relied on: it is gone with the launcher of node 0, and
nothing can end a call that waits in it for a dead rank's address. Here the wait ends as soon as
the processor learns of another fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store

from relkit.ttp.messages import LONGEST_LINE_BYTES


class Notes:
    """What has arrived for the present epoch; written by the processor, read by the save."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._epoch = 0
        self._found: dict[str, bytes] = {}

    def begin(self, epoch: int) -> None:
        """A new plan: what was left for an older one is void, and waits for that end."""
        with self._changed:
            if epoch > self._epoch:
                self._epoch, self._found = epoch, {}
                self._changed.notify_all()

    def put(self, epoch: int, key: str, data: bytes) -> None:
        """A note has come."""
        with self._changed:
            if epoch == self._epoch:
                self._found[key] = data
                self._changed.notify_all()

    def wait(self, epoch: int, keys: Sequence[str], timeout_s: float) -> list[bytes]:
        """The notes under these keys, once all are there.

        Raises:
            RuntimeError: another plan has begun, or time is over. Not an error class of relkit's:
                it goes through gloo, and means what gloo's own errors mean.
        """
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while self._epoch == epoch:
                if all(key in self._found for key in keys):
                    return [self._found[key] for key in keys]
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise RuntimeError("a member of the save's group did not come")
                self._changed.wait(left_s)
        raise RuntimeError("another plan has begun")

    def has(self, epoch: int, keys: Sequence[str]) -> bool:
        """Whether all are there."""
        with self._changed:
            return epoch == self._epoch and all(key in self._found for key in keys)


class RelayStore(Store):
    """What gloo needs of a store.

    Args:
        notes: see Notes; epoch: of the plan.
        tell: sends a note to the other members.
        timeout_s: longest wait for a note, seconds.
    """

    def __init__(
        self, notes: Notes, epoch: int, tell: Callable[[str, bytes], None], timeout_s: float
    ) -> None:
        super().__init__()
        self._notes, self._epoch, self._tell, self._timeout_s = notes, epoch, tell, timeout_s

    def set(self, key: str, value: str | bytes) -> None:
        """Leave a note."""
        data = value if isinstance(value, bytes) else value.encode()
        if len(data) * 2 > LONGEST_LINE_BYTES // 2:
            raise RuntimeError(f"a note of {len(data)} bytes is too long")
        self._notes.put(self._epoch, key, data)
        self._tell(key, data)

    def get(self, key: str) -> bytes:
        """A note, once it is there."""
        return self._notes.wait(self._epoch, [key], self._timeout_s)[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Until notes are there."""
        timeout_s = self._timeout_s if timeout is None else timeout.total_seconds()
        self._notes.wait(self._epoch, keys, min(timeout_s, self._timeout_s))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether notes are there."""
        return self._notes.has(self._epoch, keys)
