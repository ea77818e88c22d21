"""Ctrl-C while a child is being started does not come between the child and who would end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM)


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

    Signals without a handler of Python's act as ever. Only the main thread runs handlers: in
    another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    handled = [number for number in _HELD if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, note) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for held in dict.fromkeys(came):
            signal.raise_signal(held)
