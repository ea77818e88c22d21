"""Rules for collectors that must stop the target: when not to, one at a time, never for good."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from relkit.errors import CaptureFailed
from relkit.process import procfs
from relkit.process.bounded_child import ChildResult, run_child
from relkit.stacks.engines import guard
from relkit.stacks.engines.refusal import explain

# The guard kills the collector at the deadline and then looks after the target.
_GUARD_EXTRA_S = 1.5
_UNINTERRUPTIBLE = "is in uninterruptible sleep"
_ASK_AGAIN, _ASK_AGAIN_S = 4, 0.02


def why_not(pid: int) -> str:
    """Why the process must not be stopped for a look; "" where it may.

    A thread that reads from a disk is in uninterruptible sleep for a moment: ask a few times.
    """
    for _ in range(_ASK_AGAIN):
        reason = _why_not_now(pid)
        if _UNINTERRUPTIBLE not in reason:
            break
        time.sleep(_ASK_AGAIN_S)
    return reason


def _why_not_now(pid: int) -> str:
    traced_by = procfs.tracer(pid)
    if traced_by:
        return f"process {pid} is being traced by process {traced_by}, and only one can"
    for facts in procfs.threads(pid):
        where = f" ({facts.comm}, {facts.wchan or 'in the kernel'})"
        if facts.state == "D":
            return (
                f"thread {facts.os_thread_id}{where} {_UNINTERRUPTIBLE}: a collector that "
                "stops the process would wait for it forever"
            )
        if facts.state in "Tt":
            return f"thread {facts.os_thread_id}{where} is stopped already"
    return ""


def _lock_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"relkit-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    owned = folder.lstat()
    if owned.st_uid != os.getuid() or not stat.S_ISDIR(owned.st_mode):
        raise CaptureFailed(
            f"{folder} belongs to somebody else", next_step=f"Remove {folder}, or set TMPDIR."
        )
    return folder


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock; None where another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    if os.fstat(handle).st_nlink == 0:  # its last holder removed it just before we locked it
        os.close(handle)
        return None
    return handle


@contextlib.contextmanager
def only_tracer(pid: int, timeout_s: float) -> Iterator[int]:
    """Hold the right to trace the process; gives the lock's descriptor.

    Args:
        pid: the process to trace.
        timeout_s: how long to wait for another collector to be done, s.

    Raises:
        CaptureFailed: another collector is still at it.
    """
    end = time.monotonic() + timeout_s
    path = _lock_folder() / f"trace-{pid}.lock"
    try:
        while (handle := _locked(path)) is None:
            if time.monotonic() > end:
                raise CaptureFailed(f"another relkit is tracing process {pid}")
            time.sleep(0.02)
    except OSError as error:
        raise CaptureFailed(f"cannot lock process {pid} for tracing: {error.strerror}") from error
    try:
        yield handle
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def run_guarded(engine: str, pid: int, argv: Sequence[str], timeout_s: float) -> ChildResult:
    """Run a collector that stops the process while it looks.

    Args:
        engine: its name, for messages.
        pid: the target.
        argv: the collector's command.
        timeout_s: when to kill it, s; the target is running again afterwards in any case.

    Raises:
        CaptureFailed: it must not or could not look; the message says why.
    """
    end = time.monotonic() + timeout_s
    with only_tracer(pid, timeout_s / 2) as lock:
        timeout_s = max(0.0, end - time.monotonic())
        reason = why_not(pid)
        if reason:
            raise CaptureFailed(f"{engine} not used: {reason}")
        wrapped = [sys.executable, "-I", "-S", guard.__file__, str(pid), f"{timeout_s:.3f}", *argv]
        try:
            # The guard inherits the lock, and so holds it even when this process is killed.
            result = run_child(wrapped, timeout_s + _GUARD_EXTRA_S, keep=(lock,))
        except OSError as error:
            raise CaptureFailed(f"{engine} cannot be started: {error.strerror}") from error
    continued = (
        f"; {guard.CONTINUED.partition(': ')[2]}" if guard.CONTINUED in result.stderr else ""
    )
    if result.timed_out or result.returncode == guard.TIMED_OUT:
        raise CaptureFailed(f"{engine}: no answer within {timeout_s:.1f} s{continued}")
    if result.returncode != 0:
        raise CaptureFailed(explain(engine, pid, result.stderr) + continued)
    return result
