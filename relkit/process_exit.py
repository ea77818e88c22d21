"""End the process although a thread of it may be inside C++ that does not return."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

_callers: set[threading.Thread] = set()


@contextmanager
def inside_cpp() -> Iterator[None]:
    """Around a call into C++ in a daemon thread that nobody may be waiting for any more."""
    thread = threading.current_thread()
    _callers.add(thread)
    try:
        yield
    finally:
        _callers.discard(thread)


def leave(code: int) -> NoReturn:
    """End with this exit code, as `sys.exit` does.

    Where a thread is still `inside_cpp`, the interpreter is not taken down: such a thread, coming
    back while it is, unwinds through C++, which ends the process by SIGABRT. What the interpreter
    does before that is done: it waits for the threads that are not daemons, has idle thread pools
    end theirs, runs what `atexit` has, and flushes.
    """
    if not _callers:
        sys.exit(code)
    try:
        # Ctrl-C ends the wait for threads, as it does in the interpreter.
        with suppress(KeyboardInterrupt):
            vars(threading)["_shutdown"]()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        # Also where a signal's handler raises: an exit by it would take the interpreter down.
        os._exit(code)
