"""Ctrl-C while a child is being started does not come between the child and who would end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_held() -> Iterator[None]:
    """Have the handlers of SIGINT and SIGTERM run only at the end of the block.

    Python runs them between any two steps: also when a process has been started and the variable
    that names it has not been set. Put the block inside the `try` that ends the child:

        child = None
        try:
            with signals_held():
                child = subprocess.Popen(...)
            ...
        finally:
            if child is not None: ...

    A signal whose handler is not a Python function acts as ever. Only the main thread runs
    handlers: in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # One inside the other: where the handler of one raises, the other is put back and run as well.
    with _held(signal.SIGTERM), _held(signal.SIGINT):
        yield


@contextmanager
def _held(number: signal.Signals) -> Iterator[None]:
    handler = signal.getsignal(number)
    if not callable(handler):
        yield
        return
    came: list[int] = []

    def note(held: int, _frame: FrameType | None) -> None:
        came.append(held)

    try:
        signal.signal(number, note)
        yield
    finally:
        signal.signal(number, handler)
        if came:
            signal.raise_signal(number)
