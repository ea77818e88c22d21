"""Whether a process that says nothing may be left alone: it may hold the interpreter lock."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.process import procfs

_LOOK_S = 1.0
# Of a core. Threads that wait for the interpreter lock wake up 200 times a second: that is less.
_MIN_BUSY_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    cpu_s: float
    # When it was first seen to do nothing; None while it computes.
    idle_since_s: float | None = None


class Activity:
    """Looks at processes of this node, at most once a second each.

    Args:
        max_idle_s: for how long a process that lives but only sleeps is left alone, seconds. A call
            in C may sleep, or wait for a disk, with the lock held: nothing is wrong with it, and
            nobody can tell it from a deadlock but by how long it takes.
    """

    def __init__(self, max_idle_s: float) -> None:
        self._max_idle_s = max_idle_s
        self._looks: dict[int, _Look] = {}

    def excuses(self, pid: int, now_s: float) -> bool:
        """It computes, or has not been idle for long. One that is stopped or gone is never excused,
        and one that cannot be looked at always is.

        Args:
            pid: its number.
            now_s: of a clock that only goes forward, seconds.
        """
        try:
            return self._excuses(pid, now_s)
        except OSError:
            return True

    def _excuses(self, pid: int, now_s: float) -> bool:
        if not procfs.is_own():  # its number is another process's there
            return True
        state = procfs.process_state(pid)
        if state[:1] in "TtZX" or state == procfs.GONE:
            self._looks.pop(pid, None)
            return False
        last = self._looks.get(pid)
        if last is None or now_s - last.at_s > 10 * _LOOK_S:
            last = self._looks[pid] = _Look(now_s, procfs.cpu_s(pid))
        elif now_s - last.at_s >= _LOOK_S:
            cpu_s = procfs.cpu_s(pid)
            busy = cpu_s - last.cpu_s >= _MIN_BUSY_SHARE * (now_s - last.at_s)
            # On a machine that is full, a process that would compute may not get its turn.
            computes = busy or state.startswith("R")
            idle_since_s = last.at_s if last.idle_since_s is None else last.idle_since_s
            last = _Look(now_s, cpu_s, None if computes else idle_since_s)
            self._looks[pid] = last
        return last.idle_since_s is None or now_s - last.idle_since_s < self._max_idle_s
