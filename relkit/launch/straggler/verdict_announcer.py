"""Tells the terminal who is slow, and who is not any more, without repeating itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.launch.job.settings import Log
from relkit.launch.straggler.exclusion import log_line, who_is
from relkit.straggler.history_types import RaisedVerdict

# What has cost the job less is in the report, and not worth a line: every job starts unevenly.
MIN_COST_S = 1.0
# A straggler that recovers and slows down again is announced again only after this time.
_QUIET_S = 60.0


class VerdictAnnouncer:
    """Call announce() after every look.

    Args:
        job_id: for the commands in the line; host_of: by rank, as far as it is known.
        log: one line to the terminal.
    """

    def __init__(self, job_id: str, host_of: Mapping[int, str], log: Log) -> None:
        self._job_id, self._host_of, self._log = job_id, host_of, log
        # Raised, and too cheap for a line so far.
        self._pending: set[str] = set()
        self._announced: set[str] = set()
        self._quiet_until_s: dict[str, float] = {}

    def forget(self) -> None:
        """Announce everybody anew, as after a change of the settings."""
        self._quiet_until_s.clear()

    def announce(
        self, changes: Sequence[RaisedVerdict], holding: Sequence[RaisedVerdict], now_s: float
    ) -> None:
        """One line for each straggler that is new and costs enough, and for each that is over.

        Args:
            changes: verdicts that were raised or dropped since the last call.
            holding: all that hold, with what they have cost by now.
            now_s: monotonic time, s.
        """
        for change in changes:
            who = who_is(change.verdict, self._host_of)
            if change.holds:
                self._pending.add(who)
                continue
            self._pending.discard(who)
            if who in self._announced:
                self._announced.discard(who)
                self._log(log_line(change, self._job_id, self._host_of))
        for held in holding:
            who = who_is(held.verdict, self._host_of)
            if who not in self._pending or held.verdict.cost_s < MIN_COST_S:
                continue
            self._pending.discard(who)
            if now_s >= self._quiet_until_s.get(who, now_s):
                self._announced.add(who)
                self._quiet_until_s[who] = now_s + _QUIET_S
                self._log(log_line(held, self._job_id, self._host_of))
