"""Calls that may not return: another thread makes them, and nobody waits for them for ever."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from relkit.interruptible_wait import is_done_within
from relkit.process_exit import inside_cpp

# How long the thread stays when it has nothing to do, s.
_IDLE_S = 2.0
_Answer = TypeVar("_Answer")


class NoAnswer(Exception):
    """A call has not returned in time, or waits behind one that has not; it may still return."""


class BoundedCalls:
    """Makes calls one after another, in a thread of its own.

    For what a deadline cannot be given to, such as torch's client of a store whose host is cut
    off: that is in the kernel for minutes, and no signal is handled meanwhile.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The first one is the one that is being made.
        self._calls: deque[tuple[Future[Any], Callable[[], Any], float]] = deque()
        self._changed = threading.Condition()
        self._has_thread = False

    def stuck_s(self) -> float:
        """How long the oldest call has been waiting for its answer, s; 0.0 where there is none."""
        with self._changed:
            return time.monotonic() - self._calls[0][2] if self._calls else 0.0

    def call(
        self, function: Callable[..., _Answer], *arguments: object, timeout_s: float
    ) -> _Answer:
        """What the function returns, or raises; signals are handled meanwhile.

        Args:
            timeout_s: the longest to wait, s; nothing is waited for behind a call that has already
                taken longer.

        Raises:
            NoAnswer: time is up. A call that has begun goes on, and what it gives is dropped.
        """
        if self.stuck_s() > timeout_s:
            raise NoAnswer
        future: Future[_Answer] = Future()
        with self._changed:
            self._calls.append((future, partial(function, *arguments), time.monotonic()))
            self._changed.notify()
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        if not is_done_within(future, timeout_s):
            future.cancel()
            raise NoAnswer
        return future.result()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._calls, _IDLE_S):
                    self._has_thread = False
                    return
                future, function, _ = self._calls[0]
            if future.set_running_or_notify_cancel():
                try:
                    with inside_cpp():
                        answer = function()
                except BaseException as error:  # noqa: BLE001 (it is the caller's)
                    self._done()
                    future.set_exception(error)
                else:
                    self._done()
                    future.set_result(answer)
            else:
                self._done()

    def _done(self) -> None:
        with self._changed:
            self._calls.popleft()
