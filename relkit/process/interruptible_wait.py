"""Wait for another thread, or for input, so that Ctrl-C is noticed.

A wait may miss a signal for good: Python handles signals in its main thread, and one that comes
while that thread hands the interpreter to another, just before it waits, does not end the wait. On
a busy machine that befell 2 of 250. So each of these waits in slices.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

# A signal's handler runs at most this much later, s.
_SLICE_S = 0.1
_LONG_SLICE_S = 0.5

T = TypeVar("T")


def result_of(future: Future[T]) -> T:
    """What the future gives, or raises.

    Args:
        future: of a thread of this process.
    """
    is_done_within(future, math.inf)
    return future.result()


def is_done_within(future: Future[T], timeout_s: float) -> bool:
    """Whether the future is done in time.

    Args:
        future: of a thread of this process.
        timeout_s: the longest to wait, s.
    """
    return any(wait([future], slice_s).done for slice_s in _slices(timeout_s, _SLICE_S))


def is_set_within(event: threading.Event, timeout_s: float) -> bool:
    """Whether another thread sets the event in time.

    Args:
        timeout_s: the longest to wait, s.
    """
    return any(event.wait(slice_s) for slice_s in _slices(timeout_s, _SLICE_S))


def wait_for_end(thread: threading.Thread) -> None:
    """Wait for a thread that is about to end."""
    while thread.is_alive():
        thread.join(_SLICE_S)


def next_of(queue: SimpleQueue[T], timeout_s: float) -> T:
    """What another thread puts into the queue next.

    Args:
        timeout_s: the longest to wait, s.

    Raises:
        Empty: of the module `queue`: nothing in time.
    """
    for slice_s in _slices(timeout_s, _LONG_SLICE_S):
        with suppress(Empty):
            return queue.get(timeout=slice_s)
    raise Empty


def wait_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or the end of the file, before time is up.

    `select.select` takes no descriptor above 1,023: the launcher of many ranks has such.

    Args:
        descriptor: of a pipe, a socket, a terminal or a process.
        timeout_s: the longest to wait, s.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return any(poller.poll(slice_s * 1000) for slice_s in _slices(timeout_s, _LONG_SLICE_S))


def _slices(timeout_s: float, slice_s: float) -> Iterator[float]:
    """How long to wait each time, s, until the timeout has passed; at least once."""
    end_s = time.monotonic() + timeout_s
    left_s = math.inf
    while left_s > slice_s:
        left_s = max(0.0, end_s - time.monotonic())
        yield min(left_s, slice_s)
