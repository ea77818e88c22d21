"""A process that ends and does not come to its end, as on a host where it gets no core."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import eventually

# The main thread leaves; the process is there until the other one has gone as well.
_ENDS_LATE = """
import ctypes, os, platform, sys, threading
threading.Thread(target=lambda: os._exit(len(sys.stdin.read()))).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""


@contextmanager
def ends_late() -> Iterator[int]:
    """Its process id; it is at its end, and nobody can wait for it yet."""
    with subprocess.Popen([sys.executable, "-c", _ENDS_LATE], stdin=subprocess.PIPE) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "it ends")
        yield child.pid
