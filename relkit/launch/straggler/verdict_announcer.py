"""Tells the terminal who is slow, and who is not any more, without repeating itself."""

from __future__ import annotations

from collections.abc import Mapping

from relkit.launch.job.settings import Log
from relkit.launch.straggler.exclusion import log_line, who_is
from relkit.straggler.history_types import RaisedVerdict

# A straggler that recovers and slows down again is announced again only after this time.
_QUIET_S = 60.0


class VerdictAnnouncer:
    """Call announce() with every verdict that was raised or dropped.

    Args:
        job_id: for the commands in the line; host_of: by rank, as far as it is known.
        log: one line to the terminal.
    """

    def __init__(self, job_id: str, host_of: Mapping[int, str], log: Log) -> None:
        self._job_id, self._host_of, self._log = job_id, host_of, log
        self._announced: set[str] = set()
        self._quiet_until_s: dict[str, float] = {}

    def forget(self) -> None:
        """Announce everybody anew, as after a change of the settings."""
        self._quiet_until_s.clear()

    def announce(self, change: RaisedVerdict, now_s: float) -> None:
        """One line, unless the same was announced a moment ago.

        Args:
            now_s: monotonic time, s.
        """
        who = who_is(change.verdict, self._host_of)
        if change.holds and now_s < self._quiet_until_s.get(who, now_s):
            return
        if not change.holds and who not in self._announced:
            return
        if change.holds:
            self._announced.add(who)
            self._quiet_until_s[who] = now_s + _QUIET_S
        else:
            self._announced.discard(who)
        self._log(log_line(change, self._job_id, self._host_of))
