"""How workers ended: read from the kernel without reaping them, and put into words."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from relkit.files.input_file import read_input_text
from relkit.launch.job.settings import ExitStatus
from relkit.text.foreign_json import parse_json

_MAX_ERROR_FILE_BYTES = 16 << 20
# What how_rank_ended says.
_RANK_ENDED = re.compile(
    r"rank (\d{1,7}) \(pid \d{1,10}\) "
    r"(exited with code \d{1,3}|was killed by (?:SIG\w{1,12}|signal \d{1,3}))",
    re.ASCII,
)


def peek_exit(pid: int, reaped: int | None = 0) -> int | None:
    """The exit code of a child that has ended, without reaping it; None while it runs.

    Args:
        pid: of the child.
        reaped: what to return for one that was reaped already, as torch does with workers that have
            ended well.
    """
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return reaped
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def how_it_ended(exit_code: int) -> str:
    """Words for an exit code, negative for a signal: "was killed by SIGKILL"."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def how_rank_ended(rank: int, pid: int, exit_code: int) -> str:
    """The same, with the rank: "rank 3 (pid 711) was killed by SIGKILL"."""
    return f"rank {rank} (pid {pid}) {how_it_ended(exit_code)}"


def rank_that_ended(sentence: str) -> tuple[int, str] | None:
    """The inverse, of what another node says: the rank, and how it ended; None for all else."""
    match = _RANK_ENDED.fullmatch(sentence)
    return None if match is None else (int(match[1]), match[2])


def end_of_child(pid: int) -> str | None:
    """Words for how a child of this process ended; None while it runs, or is another's."""
    exit_code = peek_exit(pid)
    return None if exit_code is None else how_it_ended(exit_code)


def first_line(error_file: object) -> str:
    """The exception line of torch's error file, whose message is text or an object."""
    message = error_file.get("message", "") if isinstance(error_file, dict) else ""
    if isinstance(message, dict):
        message = message.get("message", "")
    lines = str(message).strip().splitlines()
    return lines[0][:500] if lines else ""


def exit_status(exit_code: int, error_file: Path, seen_alive_unix_s: float) -> ExitStatus:
    """How a worker ended, with the exception that it has left.

    Args:
        exit_code: negative for a signal.
        error_file: torch's, of this worker; it need not exist.
        seen_alive_unix_s: when the worker was last seen alive, Unix time: when it failed, if it has
            left no file.
    """
    if exit_code == 0:
        return ExitStatus(0)
    error, failed_unix_s = "", seen_alive_unix_s
    try:
        if error_file.is_file():
            failed_unix_s = error_file.stat().st_mtime
            error = first_line(parse_json(read_input_text(error_file, _MAX_ERROR_FILE_BYTES)))
    except (OSError, ValueError):
        error = ""
    return ExitStatus(exit_code, failed_unix_s, error)
