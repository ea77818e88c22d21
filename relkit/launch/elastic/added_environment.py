"""Variables that workers get and their launcher does not keep."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def added_environment(extra: Mapping[str, str]) -> Iterator[None]:
    """Add variables to this process's environment for as long as the workers are started.

    Workers copy it when they start, whichever start method is used; the agent itself and its
    other helpers must not run under the hook.
    """
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
