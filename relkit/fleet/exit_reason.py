"""Why a process of a channel ended, in words."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from relkit.fleet.wire import printable


@dataclass(frozen=True, slots=True)
class ExitReason:
    """Why a node's process ended, or never ran.

    Args:
        detail: for a person.
        host_down: it shows that the machine is down.
    """

    detail: str
    host_down: bool = False


def how_it_ended(code: int, complaint: str) -> str:
    """Exit code or signal, and the last line of stderr.

    Args:
        code: -n for signal n.
        complaint: stderr, or its tail.
    """
    if code < 0:
        try:
            ended = f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            ended = f"was ended by signal {-code}"
    else:
        ended = f"ended with exit code {code}"
    last = last_line(complaint)
    return f"{ended}: {last}" if last else ended


def last_line(complaint: str) -> str:
    """The last line that is not blank, safe to show."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    return printable(lines[-1].encode(), 200) if lines else ""
