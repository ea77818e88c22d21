"""Python's cyclic garbage collector, off while a merge makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """No collection of reference cycles until the block ends.

    Nearly all that a merge makes it keeps, so collections only go through it again and again, and
    those after the block pass over it. For commands that end with their merge: a process that goes
    on may have cycles to collect.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
