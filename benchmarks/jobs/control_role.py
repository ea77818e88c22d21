"""How a process of launches/control_plane.py takes orders and answers, and what it measures."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import psutil

# A leader that waits for messages gives up after this time.
QUIET_S = 40.0
# Between two heartbeats of a library's own; three of them missing are the end of a connection.
BEAT_MS = int(os.environ.get("CONTROL_BEAT_MS", "1000"))


def memory_mb() -> float:
    """Memory that this process has to itself, MB."""
    return float(psutil.Process().memory_full_info().uss) / 1e6


def cpu_s() -> float:
    """CPU time of all threads of this process so far, s."""
    return time.process_time()


class Role:
    """The driver's end is stdin (`WORD NUMBER` a line) and stdout (an object of JSON a line)."""

    def tell(self, **fields: float) -> None:
        """Answer the driver."""
        print(json.dumps(fields), flush=True)

    def orders(self) -> Iterator[tuple[str, int]]:
        """What the driver asks for, until it closes the pipe."""
        for line in sys.stdin:
            word, number = line.split()
            yield word, int(number)


def ask_for(
    argv: Sequence[str],
    lead: Callable[[Role], None],
    connect: Callable[[Role, int, int], None],
) -> None:
    """`lead`, or `connect PORT COUNT`."""
    if argv[1] == "lead":
        lead(Role())
    else:
        connect(Role(), int(argv[2]), int(argv[3]))
