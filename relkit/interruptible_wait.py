"""Wait for another thread, or for input, so that Ctrl-C is noticed."""

from __future__ import annotations

import select
import threading
import time
from concurrent.futures import Future, wait
from typing import TypeVar

_LOOK_S = 0.1
_INPUT_LOOK_S = 0.5

T = TypeVar("T")


def result_of(future: Future[T]) -> T:
    """What the future gives, or raises; a signal's handler runs within a tenth of a second.

    `future.result()` may miss a signal for good: Python handles signals in its main thread, and
    one that comes while that thread hands the interpreter to another, just before it waits, does
    not end the wait. On a busy machine that befell 2 of 250.

    Args:
        future: of a thread of this process.
    """
    while not wait([future], timeout=_LOOK_S).done:
        pass
    return future.result()


def is_done_within(future: Future[T], timeout_s: float) -> bool:
    """Whether the future is done in time; signals are handled as in `result_of`.

    Args:
        future: of a thread of this process.
        timeout_s: the longest to wait, s.
    """
    end_s = time.monotonic() + timeout_s
    while not wait([future], timeout=max(0.0, min(_LOOK_S, end_s - time.monotonic()))).done:
        if time.monotonic() >= end_s:
            return False
    return True


def is_set_within(event: threading.Event, timeout_s: float) -> bool:
    """Whether another thread sets the event in time; signals are handled as in `result_of`.

    Args:
        timeout_s: the longest to wait, s.
    """
    end_s = time.monotonic() + timeout_s
    while not event.wait(max(0.0, min(_LOOK_S, end_s - time.monotonic()))):
        if time.monotonic() >= end_s:
            return False
    return True


def wait_for_end(thread: threading.Thread) -> None:
    """Wait for a thread that is about to end; signals are handled as in `result_of`."""
    while thread.is_alive():
        thread.join(_LOOK_S)


def wait_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or the end of the file, before time is up.

    Signals are handled as in `result_of`. `select.select` takes no descriptor above 1,023: the
    launcher of many ranks has such.

    Args:
        descriptor: of a pipe, a socket, a terminal or a process.
        timeout_s: the longest to wait, s.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    end_s = time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, end_s - time.monotonic())
        if poller.poll(min(left_s, _INPUT_LOOK_S) * 1000):
            return True
        if left_s <= _INPUT_LOOK_S:
            return False
