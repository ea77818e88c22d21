"""Whether a process that says nothing is at work: its interpreter lock may be held for long."""

from __future__ import annotations

from relkit import procfs

_LOOK_S = 1.0


class Activity:
    """Looks at processes of this node, at most once a second each."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float, bool]] = {}

    def works(self, pid: int, now_s: float) -> bool:
        """It computes. A stopped process does not, nor one that only sleeps.

        Args:
            pid: its number.
            now_s: of a clock that only goes forward, seconds.
        """
        state = procfs.process_state(pid)
        if state[:1] in "TtZX" or state == procfs.GONE:
            self._seen.pop(pid, None)
            return False
        cpu_s = procfs.cpu_s(pid)
        last = self._seen.get(pid)
        if last is None or now_s - last[0] > 10 * _LOOK_S:
            # Nothing to compare with: it has the benefit of the doubt for one look.
            self._seen[pid] = (now_s, cpu_s, True)
        elif now_s - last[0] >= _LOOK_S:
            # On a machine that is full, a process that would compute may not get its turn.
            self._seen[pid] = (now_s, cpu_s, cpu_s > last[1] or state.startswith("R"))
        return self._seen[pid][2]
