"""Waiting for what another process or thread is about to do, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.patience import PATIENCE

T = TypeVar("T")


def eventually(
    look: Callable[[], T],
    what: str | Callable[[], str],
    timeout_s: float = 20.0,
    *,
    poll_s: float = 0.005,
) -> T:
    """Poll until `look` returns something true, and return that.

    Args:
        look: asked again and again.
        what: what is waited for, or a function that describes what there is instead; it fails the
            test at the deadline.
        timeout_s: what a quiet machine needs, with room; a busy one gets PATIENCE times as long.
        poll_s: pause between two looks.
    """
    deadline = time.monotonic() + timeout_s * PATIENCE
    while True:
        if result := look():
            return result
        if time.monotonic() >= deadline:
            words = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout_s * PATIENCE} s: {words}")
        time.sleep(poll_s)
