"""Python's search for circles of objects, left out while a merge makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """No search for circles until the block ends: it takes an eighth of a merge and finds none.

    For a command that ends with its merge: a process that goes on has circles of others.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
