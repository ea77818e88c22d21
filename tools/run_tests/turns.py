"""Runs of the tests take turns on a host where speed is judged: each would slow the other."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WAIT_S = 1200.0
_POLL_S = 0.5


def lock_file() -> Path:
    """What a user's runs lock on this host."""
    return Path(tempfile.gettempdir()) / f"relkit-tests-of-speed-{os.getuid()}.lock"


@contextmanager
def turn(say: Callable[[str], None], *, wait_s: float = _WAIT_S) -> Iterator[bool]:
    """Hold the lock; yields whether it could be had.

    Args:
        say: told once where another run has it.
        wait_s: after this time the block runs all the same.
    """
    held = os.open(lock_file(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield _is_mine(held, say, wait_s)
    finally:
        # The kernel lets the lock go with it.
        os.close(held)


def _is_mine(held: int, say: Callable[[str], None], wait_s: float) -> bool:
    deadline_s = time.monotonic() + wait_s
    is_told = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline_s:
            return False
        if not is_told:
            say("wait until the tests of another checkout have judged speed")
            is_told = True
        time.sleep(_POLL_S)
