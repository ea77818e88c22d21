"""Runs of the tests take turns on a host where speed is judged: each would slow the other."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WAIT_S = 1200.0
_POLL_S = 0.5


def lock_name() -> str:
    """The socket that a user's run holds on this host while it judges speed.

    An abstract one (unix(7)): a file in /tmp is another file in a fresh root.
    """
    return f"\0relkit-tests-of-speed-{os.getuid()}"


@contextmanager
def turn(say: Callable[[str], None], *, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Run the block while no other run of this user is in one.

    Args:
        say: told that another run is, and where it is for too long.
        wait_s: after this time the block runs all the same.
    """
    # The kernel frees the name with the process, however that ends. Nobody can connect to it.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        _wait(held, say, wait_s)
        yield


def _wait(held: socket.socket, say: Callable[[str], None], wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    is_told = False
    while not _is_bound(held):
        if not is_told:
            say("waiting for the tests of another checkout to judge speed")
            is_told = True
        if time.monotonic() >= deadline_s:
            say(f"going on beside them after {wait_s:g} s")
            return
        time.sleep(_POLL_S)


def _is_bound(held: socket.socket) -> bool:
    try:
        held.bind(lock_name())
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
