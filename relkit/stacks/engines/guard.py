"""Stand between relkit and a collector that stops its target: undo a stop it leaves behind.

Runs as its own small process (standard library only, no package import), so that the target is
set going again even when relkit itself is killed in the middle. Usage:
`python -I -S guard.py PID TIMEOUT_S COMMAND...`; exits like the command, 124 at the deadline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

TIMED_OUT = 124
CONTINUED = "relkit-guard: the collector left the process stopped; it was set going again"
_SETTLE_S = 0.3
_STOPS = sum(1 << (number - 1) for number in (signal.SIGSTOP, signal.SIGTSTP))


def _status(pid: int, os_thread_id: str) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/task/{os_thread_id}/status", encoding="utf-8") as stream:  # noqa: PTH123
            return dict(line.split(":", 1) for line in stream if ":" in line)
    except OSError:
        return {}


def left_stopped(pid: int) -> bool:
    """A thread of the process is stopped, or has a stop signal waiting, and nobody traces it."""
    try:
        names = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return False
    for name in names:
        status = _status(pid, name)
        if status.get("TracerPid", "0").strip() != "0":
            continue
        pending = int(status.get("SigPnd", "0"), 16) | int(status.get("ShdPnd", "0"), 16)
        # A thread in D state takes a queued stop when it wakes, and then stops all others.
        if status.get("State", "").strip()[:1] == "T" or pending & _STOPS:
            return True
    return False


def undo_stop(pid: int) -> bool:
    """Send SIGCONT if the process is (or is about to be) stopped; SIGCONT drops queued stops."""
    end = time.monotonic() + _SETTLE_S
    undone = False
    while time.monotonic() < end:
        if left_stopped(pid):
            os.kill(pid, signal.SIGCONT)
            undone = True
        time.sleep(0.02)
    return undone


def main(argv: list[str]) -> int:
    """Run the command under its deadline; see the module's docstring."""
    pid, timeout_s, command = int(argv[0]), float(argv[1]), argv[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    process = subprocess.Popen(command, start_new_session=True, restore_signals=True)
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = TIMED_OUT
    # A collector that ended well has detached; what stops the target then is somebody else's.
    if code != 0 and undo_stop(pid):
        print(CONTINUED, file=sys.stderr)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
