"""Calls that other threads leave for the thread that runs a selector."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class CallQueue(Generic[T]):
    """Wakes the selector's thread, which takes the calls.

    Args:
        selector: of that thread.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._calls: queue.SimpleQueue[Callable[[float], T]] = queue.SimpleQueue()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        selector.register(self._read, selectors.EVENT_READ)

    def put(self, call: Callable[[float], T]) -> None:
        """Leave a call; from any thread. It is given the time."""
        self._calls.put(call)
        with contextlib.suppress(OSError):
            os.write(self._write, b"x")

    def owns(self, descriptor: int) -> bool:
        """Whether this is what wakes the thread."""
        return descriptor == self._read

    def drain(self) -> None:
        """The thread is awake."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def take(self) -> Iterator[Callable[[float], T]]:
        """All calls that have been left."""
        while not self._calls.empty():
            yield self._calls.get()

    def close(self) -> None:
        """Nobody is woken any more."""
        for descriptor in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(descriptor)
