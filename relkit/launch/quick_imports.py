"""Imports without garbage collection, which would find next to nothing to free."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Switch garbage collection off for imports that make many objects, as PyTorch's does.

    Python collects whenever enough objects have been made, and nearly all that an import makes
    stays.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
