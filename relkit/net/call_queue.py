"""Calls that other threads leave for the thread that runs a selector."""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class CallQueue(Generic[T]):
    """Wakes the selector's thread, which takes the calls.

    After `close`, calls are kept and nobody is woken.

    Args:
        selector: of that thread.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._calls: queue.SimpleQueue[Callable[[float], T]] = queue.SimpleQueue()
        # Not a pipe: the number of a closed descriptor may soon be another file's, and a socket
        # object knows that it is closed.
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)
        selector.register(self._read, selectors.EVENT_READ)

    def put(self, call: Callable[[float], T]) -> None:
        """Leave a call, which gets the time (monotonic, seconds); from any thread, at any time."""
        self._calls.put(call)
        with contextlib.suppress(OSError):
            self._write.send(b"x")

    def owns(self, descriptor: int) -> bool:
        """Whether this is what wakes the thread."""
        return descriptor == self._read.fileno()

    def drain(self) -> None:
        """Take note that the thread is awake."""
        with contextlib.suppress(BlockingIOError):
            self._read.recv(4096)

    def take(self) -> Iterator[Callable[[float], T]]:
        """All calls that have been left."""
        while not self._calls.empty():
            yield self._calls.get()

    def close(self) -> None:
        """Wake nobody any more."""
        self._read.close()
        self._write.close()
