"""What else may have made a rank slower than its peers: a save, or helpers that had no core.

Both are read from the kernel now and then, for the whole time since the look before. Neither says
that the rank was slow by it: only so much of its slowness, at most, is held against nobody.
"""

from __future__ import annotations

import time

import numpy as np

from relkit.process import procfs
from relkit.straggler.collect.look_pause import pause_s
from relkit.straggler.model import LOCAL_PARTS, OFF_CPU, Floats

# What is written between two looks, from which on the rank saves something: bytes, and bytes a
# second. A log is less; what a save of less takes is a trifle.
_SAVE_BYTES, _SAVE_BYTES_S = 1_000_000, 500_000
_EVERY_S = 0.5
_MAX_THREADS = 1024


class Excuses:
    """Call look() before the steps of a rank are made, and excused_s() with their parts."""

    def __init__(self) -> None:
        self._next_s, self._looked_s = 0.0, 0.0
        self._waited_s: dict[int, float] = {}
        self._written_bytes: int | None = None
        # Of the time between the last two looks: its helpers waited for a core; it saved.
        self._waits_share, self._saves = 0.0, False

    def look(self, pid: int, now_s: float) -> None:
        """See what has happened since the last look, if that is due.

        Args:
            pid: of the rank; now_s: monotonic time, s.
        """
        if now_s < self._next_s:
            return
        began_s = time.thread_time()
        waited_s, written_bytes = _waited_s(pid), procfs.written_bytes(pid)
        elapsed_s = now_s - self._looked_s
        if self._looked_s and elapsed_s > 0.0:
            # A thread that is new has waited since then only.
            more_s = sum(max(0.0, s - self._waited_s.get(who, 0.0)) for who, s in waited_s.items())
            self._waits_share = min(1.0, more_s / elapsed_s)
            least_bytes = max(_SAVE_BYTES, _SAVE_BYTES_S * elapsed_s)
            self._saves = (
                written_bytes is not None
                and self._written_bytes is not None
                and written_bytes - self._written_bytes >= least_bytes
            )
        self._waited_s, self._written_bytes, self._looked_s = waited_s, written_bytes, now_s
        self._next_s = now_s + pause_s(_EVERY_S, began_s)

    def excused_s(self, length_s: Floats, parts: Floats) -> Floats:
        """Of each step what may have gone into waiting for helpers, or into a save, s.

        Args:
            length_s: of the steps; parts: (len(PARTS), steps), s.
        """
        local_s: Floats = parts[:LOCAL_PARTS].sum(axis=0)
        if self._saves:
            return local_s
        # Who waits for helpers sleeps.
        slept_s = np.where(np.isfinite(parts[OFF_CPU]), parts[OFF_CPU], local_s)
        excused_s: Floats = np.minimum(self._waits_share * length_s, slept_s)
        return excused_s


def _waited_s(pid: int) -> dict[int, float]:
    """How long each thread but the main one, and each of its children, has waited for a core."""
    waited_s: dict[int, float] = {}
    for process in (pid, *procfs.descendants(pid)):
        for thread in procfs.thread_ids(process)[: _MAX_THREADS - len(waited_s)]:
            if thread != pid:
                waited_s[thread] = procfs.cpu_wait_s(process, thread)
    return waited_s
