"""Whether a signal would do a thread harm, as far as /proc tells."""

from __future__ import annotations

import os
import platform
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

# rt_sigtimedwait, which takes a signal for itself instead of having its handler called.
_WAITS_FOR_SIGNALS = {"x86_64": 128, "aarch64": 137}.get(platform.machine(), -1)
# _SC_MINSIGSTKSZ of glibc: what the kernel puts on a stack before a handler is called.
_SC_MINSIGSTKSZ = 249
# What the hook's handler needs until it is on a stack of its own.
_HANDLER_BYTES = 1024

WAITS_FOR_SIGNALS = "waits for signals itself (sigwaitinfo)"


@dataclass(frozen=True, slots=True)
class SystemCall:
    """The system call that a thread is in.

    Args:
        number: the kernel's, of this machine; -1 where it is in none.
        stack_pointer: of the thread.
    """

    number: int
    stack_pointer: int


def current_call(pid: int, tid: int) -> SystemCall | None:
    """What a thread is in; None where it runs, or where this user must not look."""
    try:
        words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        return SystemCall(int(words[0]), int(words[-2], 16))
    except (OSError, ValueError, IndexError):
        return None


def handler_bytes() -> int:
    """What a thread's stack must have left for a signal to be handled, bytes."""
    try:
        frame = os.sysconf(_SC_MINSIGSTKSZ)
    except (OSError, ValueError):
        frame = 8192
    return max(frame, 2048) + _HANDLER_BYTES


class Interruptible:
    """Answers for the threads of one process; what is mapped is read once.

    Args:
        pid: process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._mapped: list[tuple[int, int]] | None = None

    def why_not(self, tid: int) -> str:
        """Why this thread must not get a signal; "" where it may."""
        call = current_call(self._pid, tid)
        if call is None:
            return ""
        if call.number == _WAITS_FOR_SIGNALS:
            return WAITS_FOR_SIGNALS
        # The main thread's stack grows.
        if tid != self._pid and call.stack_pointer:
            left = self._left_below(call.stack_pointer)
            if left is not None and left < handler_bytes():
                return f"has no room on its stack for a signal ({left} bytes are left)"
        return ""

    def _left_below(self, address: int) -> int | None:
        if self._mapped is None:
            self._mapped = _mapped(self._pid)
        at = bisect_right(self._mapped, (address, 1 << 64)) - 1
        if at < 0 or address > self._mapped[at][1]:
            return None
        return address - self._mapped[at][0]


def _mapped(pid: int) -> list[tuple[int, int]]:
    """Ranges that can be written, by address; empty where this user must not look."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    ranges = []
    for line in lines:
        words = line.split(None, 2)
        if words[1][1] == "w":
            low, _, high = words[0].partition("-")
            ranges.append((int(low, 16), int(high, 16)))
    return ranges
