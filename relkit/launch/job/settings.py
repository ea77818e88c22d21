"""What the parts of the launcher agree on: settings, ranks on this node, how they ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relkit.errors import EXIT_PROBLEM, RelkitError
from relkit.findings import Report
from relkit.hang.model import HangVerdict, JobView
from relkit.launch.job.on_hang import OnHang
from relkit.stacks.model import RankDump

# Called with the result of an incident: shows it, and writes it to disk.
Publish = Callable[[JobView, HangVerdict, Report, Sequence[RankDump]], None]

# Writes one line to the terminal, apart from the job's own output.
Log = Callable[[str], None]


class JobAborted(RelkitError):
    """relkit ended a job that hung, because --on-hang said so."""

    exit_code = EXIT_PROBLEM
    next_step = "See the verdict above; the files with the stacks, if any, are named after it."


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What the monitor is to do.

    Args:
        hang_timeout_s: how long no progress is a hang, s, above 0.
        on_hang: what then.
        argv: relkit's own command line, for the report.
        on_hang_netcheck: measure the links between the suspects' nodes before that.
    """

    hang_timeout_s: float
    on_hang: OnHang
    argv: tuple[str, ...] = ()
    on_hang_netcheck: bool = False


@dataclass(frozen=True, slots=True)
class LocalRank:
    """One rank that runs on this node.

    Args:
        rank: global rank.
        pid: process that the launcher started for it; the recorder may sit in a child of it.
    """

    rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a rank's process ended.

    Args:
        exit_code: 0..255, or negative for the signal that killed it; None where not known.
        failed_unix_s: when it failed, Unix time; 0 where it did not, or where not known.
        error: first line of the error that it reported, "" for none.
    """

    exit_code: int | None
    failed_unix_s: float = 0.0
    error: str = ""
