"""Wait for a thread's result so that Ctrl-C is noticed."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import TypeVar

_LOOK_S = 0.1

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
