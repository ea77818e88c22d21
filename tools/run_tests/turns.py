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
def turn(say: Callable[[str], None], *, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Run the block while no other run of this user is in one.

    Args:
        say: told that another run is, and where it is for too long.
        wait_s: after this time the block runs all the same.
    """
    held = os.open(lock_file(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _wait(held, say, wait_s)
        yield
    finally:
        # The kernel lets the lock go with it.
        os.close(held)


def _wait(held: int, say: Callable[[str], None], wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    is_told = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if not is_told:
            say("waiting for the tests of another checkout to judge speed")
            is_told = True
        if time.monotonic() >= deadline_s:
            say(f"going on beside them after {wait_s:g} s")
            return
        time.sleep(_POLL_S)
