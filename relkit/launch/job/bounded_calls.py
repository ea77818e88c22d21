"""Calls that may not return: another thread makes them, so that the caller can give up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from relkit.process.held_signals import signals_held
from relkit.process.interruptible_wait import is_done_within

# How long the thread stays when it has nothing to do, s.
_IDLE_S = 2.0
_Answer = TypeVar("_Answer")


class NoAnswer(Exception):
    """A call has not returned in time, or waits behind one that has not; it may still return."""


class BoundedCalls:
    """Makes calls one after another, in a thread of its own.

    For what takes no deadline, such as torch's client of a store: while the store's host is cut
    off, it stays in the kernel for minutes and handles no signal. A call that does not return
    keeps the one thread; no other is started beside it.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Each with the time of asking, s. The first is the one that is being made.
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
            timeout_s: the longest to wait, s; there is no wait at all where an earlier call has
                already taken longer.

        Raises:
            NoAnswer: time is up. A call that has begun goes on, and its answer is dropped; one
                that has not is never made.
        """
        if self.stuck_s() > timeout_s:
            raise NoAnswer
        future: Future[_Answer] = Future()
        try:
            with signals_held(), self._changed:
                self._calls.append((future, partial(function, *arguments), time.monotonic()))
                self._changed.notify()
                if not self._has_thread:
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
                    self._has_thread = True
            if is_done_within(future, timeout_s):
                return future.result()
        finally:
            # Not made when its turn comes, also where a signal's handler has raised here.
            future.cancel()
        raise NoAnswer

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._calls, _IDLE_S):
                    self._has_thread = False
                    return
                future, function, _ = self._calls[0]
            if future.set_running_or_notify_cancel():
                try:
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
