"""A process that has been asked to end and does not come to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_BLOCKS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def asked_to_end() -> Iterator[int]:
    """Its process id; the signal waits for it, as on a host where it gets no core."""
    with subprocess.Popen(
        [sys.executable, "-c", _BLOCKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGTERM)
        yield child.pid
