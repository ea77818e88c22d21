"""What else may have made a rank slower than its peers: a save, or helpers that had no core.

Both are read from the kernel now and then, for the whole time since the look before. Neither says
that the rank was slow by it: only so much of its slowness, at most, is held against nobody.
"""

from __future__ import annotations

import os
import time
from io import FileIO

import numpy as np

from relkit.process.procfs import descendants
from relkit.straggler.model import LOCAL_PARTS, OFF_CPU, Floats

# What is written between two looks, from which on the rank saves something: bytes, and bytes a
# second. A log is less; what a save of less takes is a trifle.
_SAVE_BYTES, _SAVE_BYTES_S = 1_000_000, 500_000
_EVERY_S = 0.5
# A look costs a file for each thread: of a core it takes no more than one part in so many.
_COST_SHARE = 400.0
_MAX_THREADS = 1024


class Excuses:
    """Call look() before the steps of a rank are made, and excused_s() with their parts."""

    def __init__(self) -> None:
        self._next_s, self._looked_s = 0.0, 0.0
        self._waited_ns: dict[int, int] = {}
        self._written = -1
        # Of the time between the last two looks: its helpers waited for a core; it saved.
        self._waits_share, self._saves = 0.0, False

    def look(self, pid: int, now_s: float) -> None:
        """See what has happened since the last look, if that is due.

        Args:
            pid: of the rank; now_s: monotonic time, s.
        """
        if now_s < self._next_s:
            return
        began_s = time.monotonic()
        waited_ns, written = _waited_ns(pid), written_bytes(pid)
        elapsed_s = now_s - self._looked_s
        if self._looked_s and elapsed_s > 0.0:
            # A thread that is new has waited since then only.
            more = sum(max(0, ns - self._waited_ns.get(who, 0)) for who, ns in waited_ns.items())
            self._waits_share = min(1.0, more / 1e9 / elapsed_s)
            is_known = written >= 0 and self._written >= 0
            least = max(_SAVE_BYTES, _SAVE_BYTES_S * elapsed_s)
            self._saves = is_known and written - self._written >= least
        self._waited_ns, self._written, self._looked_s = waited_ns, written, now_s
        self._next_s = now_s + max(_EVERY_S, _COST_SHARE * (time.monotonic() - began_s))

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


def written_bytes(pid: int) -> int:
    """Bytes of files that the process has written so far; -1 where that cannot be read."""
    try:
        with FileIO(f"/proc/{pid}/io") as stream:
            lines = stream.readall().splitlines()
        return next(int(line[13:]) for line in lines if line.startswith(b"write_bytes: "))
    except (OSError, ValueError, StopIteration):
        return -1


def _waited_ns(pid: int) -> dict[int, int]:
    """How long each thread but the main one, and each of its children, has waited for a core."""
    waited_ns: dict[int, int] = {}
    for process in (pid, *descendants(pid)):
        try:
            threads = os.listdir(f"/proc/{process}/task")  # noqa: PTH208  a look costs the job
        except OSError:
            continue
        for name in threads[: _MAX_THREADS - len(waited_ns)]:
            if name == str(pid):
                continue
            try:
                with FileIO(f"/proc/{process}/task/{name}/schedstat") as stream:
                    waited_ns[int(name)] = int(stream.readall().split()[1])
            except (OSError, ValueError, IndexError):
                continue
    return waited_ns
