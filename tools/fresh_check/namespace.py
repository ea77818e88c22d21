"""Run a command in namespaces that end with it, whatever happens to who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# The caller's death kills unshare, whose death kills the first process, whose death kills all
# others of its namespace; mounts and network namespaces go with the last of them.
_UNSHARE = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid",
    "--uts", "--ipc", "--fork", "--kill-child=SIGKILL", "--",
)  # fmt: skip
_GRACE_S = 30.0


def run_contained(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    limit_s: float,
    each_line: Callable[[str], None],
) -> int:
    """Run `argv` as the first process of new mount, pid, uts and ipc namespaces.

    Args:
        argv: the command; its output, both streams, goes line by line to `each_line`.
        environment: all of its environment.
        limit_s: after this long it is ended.
        each_line: called with each line, without its end.

    Returns:
        Its exit code; 124 where the limit was reached.
    """
    process = subprocess.Popen(
        [*_UNSHARE, *argv], env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _end(process)

    timer = threading.Timer(limit_s, expire)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            each_line(line.rstrip("\n"))
        code = process.wait(_GRACE_S)
    finally:
        timer.cancel()
        _end(process)
        if process.stdout is not None:
            process.stdout.close()
    return 124 if expired.is_set() else code


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the namespace's first process, and wait until all that it held has gone."""
    if process.poll() is not None:
        return
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        first = [int(word) for word in children.read_text(encoding="ascii").split()]
    except OSError:
        first = []
    for pid in first:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if not first:
        process.kill()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_GRACE_S)
