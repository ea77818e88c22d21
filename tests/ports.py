"""TCP ports of the loopback for what a test is about to start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000


def free_port() -> int:
    """A port on which nobody listens, and that the kernel gives to nobody who asks for any.

    One that the kernel chose and that was let go may be given to another job's gloo at once: its
    listener takes whatever connects for a peer, and both jobs fail.
    """
    end = int(_RANGE.read_text(encoding="ascii").split()[0])
    # Not of hypothesis's or a test's random numbers: other processes draw as well.
    draw = random.SystemRandom()
    for _ in range(100):
        port = draw.randrange(_LOWEST, end) if end > _LOWEST else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError(f"no free port from {_LOWEST} to {end}")
