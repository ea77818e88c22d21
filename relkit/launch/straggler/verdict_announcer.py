"""Tells the terminal who is slow, and who is not any more, without repeating itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from relkit.launch.job.settings import Log
from relkit.launch.straggler.exclusion import log_line, who_is
from relkit.straggler.history_types import RaisedVerdict

# What has cost the job less is in the report, and not worth a line: every job starts unevenly.
MIN_COST_S = 1.0
# A straggler that recovers and slows down again is announced again only after this time.
_QUIET_S = 60.0
# Who is as fast as the others for less may only be luckier for a moment.
_RECOVERED_S = 10.0


class VerdictAnnouncer:
    """Call announce() after every look, and end() after the last.

    Args:
        job_id: for the commands in the line; host_of: by rank, as far as it is known.
        log: one line to the terminal.
    """

    def __init__(self, job_id: str, host_of: Mapping[int, str], log: Log) -> None:
        self._job_id, self._host_of, self._log = job_id, host_of, log
        # Raised, and too cheap for a line so far.
        self._pending: set[str] = set()
        self._announced: set[str] = set()
        # Dropped, and since when; not said yet.
        self._dropped: dict[str, tuple[RaisedVerdict, float]] = {}
        self._quiet_until_s: dict[str, float] = {}

    def forget(self) -> None:
        """Announce everybody anew, as after a change of the settings."""
        self._quiet_until_s.clear()

    def announce(
        self, changes: Sequence[RaisedVerdict], holding: Sequence[RaisedVerdict], now_s: float
    ) -> None:
        """A line for each straggler that is new and costs enough, and for each that has recovered.

        Args:
            changes: verdicts that were raised or dropped since the last call.
            holding: all that hold, with what they have cost by now.
            now_s: monotonic time, s.
        """
        self._say_recovered(now_s - _RECOVERED_S)
        for change in changes:
            who = who_is(change.verdict, self._host_of)
            self._pending.discard(who)
            if not change.holds and who in self._announced:
                self._dropped[who] = (change, now_s)
            elif change.holds:
                dropped, _ = self._dropped.pop(who, (None, 0.0))
                if dropped is None or dropped.verdict.cause is not change.verdict.cause:
                    self._pending.add(who)
        for held in holding:
            who = who_is(held.verdict, self._host_of)
            if who not in self._pending or held.verdict.cost_s < MIN_COST_S:
                continue
            self._pending.discard(who)
            if now_s >= self._quiet_until_s.get(who, now_s):
                self._announced.add(who)
                self._quiet_until_s[who] = now_s + _QUIET_S
                self._log(log_line(held, self._job_id, self._host_of))

    def end(self) -> None:
        """The job is over: nobody who has recovered can slow down again."""
        self._say_recovered(math.inf)

    def _say_recovered(self, latest_s: float) -> None:
        """Of those that were dropped by then."""
        for who, (dropped, since_s) in list(self._dropped.items()):
            if since_s <= latest_s:
                del self._dropped[who]
                self._announced.discard(who)
                self._log(log_line(dropped, self._job_id, self._host_of))
