"""End the process although a thread of it may be inside C++ that does not return."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End with this exit code, as `sys.exit` does.

    Where a daemon thread still runs, ours or a library's, the interpreter is not taken down: one
    that is inside C++ (torch's, numpy's) and comes back meanwhile unwinds through it, which ends
    the process by SIGABRT. So does a thread of torch's own, of which Python knows nothing, when it
    drops a tensor. What the interpreter does before that is done: it waits for the threads that
    are not daemons, has idle thread pools end theirs, runs what `atexit` has, and flushes.
    """
    if "torch" not in sys.modules and not any(t.daemon for t in threading.enumerate()):
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
