"""Wait for input on a descriptor of any number."""

from __future__ import annotations

import select
import time

# Python handles a signal in its main thread, and one that comes just before that thread waits
# does not end the wait: so no wait is longer than this.
_LOOK_S = 0.5


def wait_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or the end of the file, before time is up.

    `select.select` takes no descriptor above 1,023: the launcher of many ranks has such.

    Args:
        descriptor: of a pipe, a socket, a terminal or a process.
        timeout_s: the longest to wait, s.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    end_s = time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, end_s - time.monotonic())
        if poller.poll(min(left_s, _LOOK_S) * 1000):
            return True
        if left_s <= _LOOK_S:
            return False
