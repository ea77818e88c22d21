"""Measures how many cores of this host are at work, and how many of them for the job's ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from io import FileIO

from relkit.process.procfs import cpu_s, descendants
from relkit.straggler.collect.look_pause import pause_s
from relkit.straggler.host_load import HostLoad

# From the first look to the second, which says something, and from then on.
_SOON_S, _EVERY_S = 1.0, 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class HostLoadMeter:
    """Call look() now and then; `load` is what it came to, None until there were two looks."""

    def __init__(self) -> None:
        self.load: HostLoad | None = None
        self._began_s = self._next_s = 0.0
        self._busy_at_first_s = 0.0
        # Of the job's processes: CPU time at the first look at each, and at the last. Of those that
        # are gone, what they had used in between, all together: a job may have had any number.
        self._own_s: dict[int, tuple[float, float]] = {}
        self._gone_s = 0.0

    def look(self, pids: Iterable[int], now_s: float) -> None:
        """Look, if that is due.

        Args:
            pids: of this host's ranks; now_s: monotonic time, s.
        """
        if now_s < self._next_s:
            return
        busy_s, cores = busy_time()
        if not cores:
            return
        look_began_s = time.thread_time()
        is_first = not self._began_s
        present: dict[int, tuple[float, float]] = {}
        for pid in {each for rank in pids for each in (rank, *descendants(rank))}:
            used_s = cpu_s(pid)
            # What begins later has used all of it since.
            first_s, last_s = self._own_s.pop(pid, (used_s if is_first else 0.0, 0.0))
            present[pid] = (first_s, max(last_s, used_s))
        for pid, (first_s, last_s) in self._own_s.items():
            if last_s and cpu_s(pid) >= last_s:
                # It lives, and was not seen as a child of anybody's.
                present[pid] = (first_s, last_s)
            else:
                self._gone_s += last_s - first_s
        self._own_s = present
        self._next_s = now_s + pause_s(_SOON_S if is_first else _EVERY_S, look_began_s)
        if is_first:
            self._began_s, self._busy_at_first_s = now_s, busy_s
            return
        elapsed_s = now_s - self._began_s
        own_s = self._gone_s + sum(last_s - first_s for first_s, last_s in present.values())
        self.load = HostLoad(cores, (busy_s - self._busy_at_first_s) / elapsed_s, own_s / elapsed_s)


def busy_time() -> tuple[float, int]:
    """(seconds that all cores of the host have worked since it began, cores); 0 cores = unknown."""
    try:
        with FileIO("/proc/stat") as stream:
            lines = [line for line in stream.readall().splitlines() if line.startswith(b"cpu")]
        # user, nice, system, idle, iowait, irq, softirq
        ticks = [int(word) for word in lines[0].split()[1:8]]
    except (OSError, ValueError, IndexError):
        return 0.0, 0
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S, len(lines) - 1
