"""Run a collector as a child process: its output in memory, a hard deadline, always reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from types import MappingProxyType

from relkit.process.held_signals import signals_held
from relkit.process.interruptible_wait import wait_readable

_REAP_S = 1.0
_OUTPUT_LIMIT_BYTES = 64 << 20
# Output is in memory, which is the job's: who prints without end is ended. Looked at so often, s.
_FLOOD_BYTES = 256 << 20
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a collector ended.

    Args:
        returncode: its exit status; negative = killed by that signal.
        stdout, stderr: what it printed, at most 64 MiB each.
        timed_out: it was killed at the deadline.
        flooded: it was killed because it printed without end.
    """

    returncode: int
    stdout: bytes
    stderr: str
    timed_out: bool = False
    flooded: bool = False


def find_tool(name: str) -> str | None:
    """Path of a collector: beside this interpreter first (its own virtual env), then on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / name
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    return which(name)


def memory_file() -> int:
    """Open a file without a name, which the caller closes."""
    try:
        return os.memfd_create("relkit-collector")
    except AttributeError:  # a Python built on a C library before 2.27
        with tempfile.TemporaryFile() as stream:
            return os.dup(stream.fileno())


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait for the end of the process without the poll interval of Popen.wait."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, AttributeError):  # a kernel before 5.3, or a Python built on one
        handle = -1
    try:
        if handle >= 0:
            if not wait_readable(handle, max(0.0, timeout_s)):
                return False
            timeout_s = _REAP_S
        process.wait(max(0.0, timeout_s))
    except subprocess.TimeoutExpired:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def end_group(child: subprocess.Popen[bytes], reap_s: float) -> None:
    """Kill the child's process group, and reap the child; at the end of the time it is left.

    Args:
        child: not reaped yet, and started in a session of its own.
        reap_s: how long to wait for its end, s. One in an uninterruptible wait, as of a driver or
            of a dead file server, goes when the kernel lets it.
    """
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(reap_s)


def run_child(
    argv: Sequence[str],
    timeout_s: float,
    keep: Sequence[int] = (),
    add_environment: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> ChildResult:
    """Run argv to its end, to the deadline, or until it has printed far too much.

    Output goes to memory files instead of pipes: a collector can then neither block on a full
    pipe nor die of a broken one while it holds the target.

    Args:
        argv: the command; argv[0] is an absolute path.
        timeout_s: when to kill it and its process group, s.
        keep: file descriptors that it inherits.
        add_environment: variables that it gets beside those of `environment`.
        environment: what it gets; None: what this process has.
        stdin: descriptor of a file that it reads; a pipe could be left full.

    Raises:
        OSError: it cannot be started.
    """
    # The collector must not carry the hook, nor log into its own standard error.
    given = os.environ if environment is None else environment
    variables = {k: v for k, v in given.items() if k not in ("LD_PRELOAD", "RUST_LOG")}
    variables.update(add_environment)
    out, err = memory_file(), memory_file()
    try:
        began = time.monotonic()
        process = None
        ended = False
        try:
            with signals_held():
                process = subprocess.Popen(
                    list(argv),
                    stdin=stdin,
                    stdout=out,
                    stderr=err,
                    env=variables,
                    pass_fds=tuple(keep),
                    start_new_session=True,
                )
            while not (ended := _wait(process, min(_LOOK_S, began + timeout_s - time.monotonic()))):
                if time.monotonic() - began >= timeout_s or _is_flood(out) or _is_flood(err):
                    break
        finally:
            if process is not None and process.returncode is None:
                end_group(process, _REAP_S)
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        flooded = not ended and (_is_flood(out) or _is_flood(err))
        stdout = os.pread(out, _OUTPUT_LIMIT_BYTES, 0)
        stderr = os.pread(err, _OUTPUT_LIMIT_BYTES, 0).decode("utf-8", "replace")
    finally:
        os.close(out)
        os.close(err)
    return ChildResult(code, stdout, stderr, not ended and not flooded, flooded)


def _is_flood(output: int) -> bool:
    return os.fstat(output).st_blocks * 512 > _FLOOD_BYTES
