"""Imports without garbage collection, which takes a quarter of their time and finds nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import inside of it what makes many objects that stay, as PyTorch does.

    Python looks through all that there is whenever enough has come to it, and while importing
    nearly all of that stays. Threads may be inside at the same time: the first to enter switches
    collection on again when it leaves.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
