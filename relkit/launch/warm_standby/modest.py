"""A standby makes room for the job: it runs last, is killed first, and goes with its launcher.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

NICE = 10
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_CAP_SYS_NICE = 1 << 23
# Killed first where memory runs out: the job comes first.
_OOM_SCORE = "1000"


class Modest:
    """Gone with the launcher, and after step_back() the first to be killed and the last to run.

    All of it ends with end().
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        signal_at_end = ctypes.c_int(0)
        self._libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal_at_end), 0, 0, 0)
        self._signal_at_end = signal_at_end.value
        launcher = os.getppid()
        self._libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if launcher != os.getppid():
            os._exit(0)
        self._comm = self._oom_score = ""
        self._is_nice = False
        self._nice = 0

    def step_back(self) -> None:
        """Nobody needs this process for now."""
        if self._comm:
            return
        self._comm = _read("/proc/self/comm")
        _write("/proc/self/comm", "relkit-standby")
        self._oom_score = _read("/proc/self/oom_score_adj")
        _write("/proc/self/oom_score_adj", _OOM_SCORE)
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        # Only where it can be undone.
        self._is_nice = may_be_raised() and self._nice < NICE
        if self._is_nice:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)

    def end(self) -> None:
        """As any other process again.

        Raises:
            OSError: that is not possible.
        """
        if self._is_nice:
            for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, int(thread), self._nice)
        if self._oom_score:
            _write("/proc/self/oom_score_adj", self._oom_score)
            if _read("/proc/self/oom_score_adj") != self._oom_score:
                raise OSError("oom_score_adj cannot be set back")
        if self._comm:
            _write("/proc/self/comm", self._comm)
        self._libc.prctl(_PR_SET_PDEATHSIG, self._signal_at_end, 0, 0, 0)


def may_be_raised() -> bool:
    """Whether this process may run at a higher priority again once it has lowered it."""
    with suppress(OSError, ValueError):
        for line in _read("/proc/self/status").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & _CAP_SYS_NICE)
    return False


def _read(path: str) -> str:
    try:
        with open(path) as stream:  # noqa: PTH123
            return stream.read().strip()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with suppress(OSError), open(path, "w") as stream:  # noqa: PTH123
        stream.write(text)
