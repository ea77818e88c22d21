"""Tells the recorder in this process what only the program knows: steps, input waits, collections.

Needs no torch and no launcher: where the hook is not preloaded, nothing happens.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from relkit.accounting.worker_notes import note_counted


class _Counter:
    """Numbers the steps of a loop that does not number them itself."""

    def __init__(self) -> None:
        self.next = 0


_steps = _Counter()


@cache
def _library() -> Any:  # noqa: ANN401  what ctypes gives has no better type
    """The process's own symbols, None where the hook is not among them."""
    own = ctypes.CDLL(None)
    try:
        own.relkit_mark_step.argtypes = [ctypes.c_uint64]
        own.relkit_mark_step.restype = None
        for mark in (own.relkit_mark_input, own.relkit_mark_gc):
            mark.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
            mark.restype = None
    except AttributeError:
        return None
    return own


def mark_step(number: int | None = None) -> None:
    """A training step begins now.

    Args:
        number: of the step, 0 or more, the same on all ranks; counted where it is not given.
    """
    library = _library()
    if number is None:
        number = _steps.next
        if number == 0 and library is not None:
            note_counted()
    _steps.next = number + 1
    if library is not None and number >= 0:
        library.relkit_mark_step(number)


def mark_input(start_ns: int, end_ns: int) -> None:
    """The loop waited for its next batch (time.monotonic_ns())."""
    library = _library()
    if library is not None:
        library.relkit_mark_input(start_ns, end_ns)


def mark_gc(start_ns: int, end_ns: int) -> None:
    """Garbage was collected (time.monotonic_ns())."""
    library = _library()
    if library is not None:
        library.relkit_mark_gc(start_ns, end_ns)


@contextmanager
def input_wait() -> Iterator[None]:
    """Around the wait for the next batch."""
    start_ns = time.monotonic_ns()
    try:
        yield
    finally:
        mark_input(start_ns, time.monotonic_ns())
