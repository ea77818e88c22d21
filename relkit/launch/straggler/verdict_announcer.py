"""Tells the terminal who is slow, and who is not any more, without repeating itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.launch.job.settings import Log
from relkit.launch.straggler.exclusion import log_line, who_is
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.model import Cause, Verdict

# What has cost the job less is in the report, and not worth a line: every job starts unevenly.
MIN_COST_S = 1.0
# The same for what has cost less of its time.
_MIN_SHARE = 0.01
# A straggler that recovers and slows down again is announced again only after this time. What it
# cost before is counted as well if it slows down sooner.
_QUIET_S = 60.0
# Who is as fast as the others for less may only be luckier for a moment.
_RECOVERED_S = 10.0


@dataclass(frozen=True, slots=True)
class _Spell:
    """Verdicts on one straggler for one reason, with short times between them.

    Args:
        cause, first_step: of the first; began_s: when it was raised, monotonic time.
        cost_s: of all that were dropped, by now; until_s: when the last was; inf where one holds.
    """

    cause: Cause
    first_step: int
    began_s: float
    cost_s: float = 0.0
    until_s: float = math.inf

    def goes_on(self, verdict: Verdict, now_s: float) -> bool:
        """Whether a verdict that is raised now belongs to it."""
        return self.cause is verdict.cause and now_s - self.until_s < _QUIET_S


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
        self._spells: dict[str, _Spell] = {}
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
            self._note_spell(who, change, now_s)
            if not change.holds and who in self._announced:
                self._dropped[who] = (change, now_s)
            elif change.holds:
                dropped, _ = self._dropped.pop(who, (None, 0.0))
                if dropped is None or dropped.verdict.cause is not change.verdict.cause:
                    self._pending.add(who)
        for held in holding:
            who = who_is(held.verdict, self._host_of)
            if who not in self._pending:
                continue
            spell = self._spells[who]
            cost_s = spell.cost_s + held.verdict.cost_s
            if cost_s < max(MIN_COST_S, _MIN_SHARE * (now_s - spell.began_s)):
                continue
            self._pending.discard(who)
            if now_s >= self._quiet_until_s.get(who, now_s):
                self._announced.add(who)
                self._quiet_until_s[who] = now_s + _QUIET_S
                all_of_it = replace(held.verdict, first_step=spell.first_step, cost_s=cost_s)
                self._log(log_line(replace(held, verdict=all_of_it), self._job_id, self._host_of))

    def end(self) -> None:
        """The job is over: nobody who has recovered can slow down again."""
        self._say_recovered(math.inf)

    def _note_spell(self, who: str, change: RaisedVerdict, now_s: float) -> None:
        verdict, spell = change.verdict, self._spells.get(who)
        if change.holds:
            if spell is None or not spell.goes_on(verdict, now_s):
                spell = _Spell(verdict.cause, verdict.first_step, now_s)
            self._spells[who] = replace(spell, until_s=math.inf)
        elif spell is not None:
            cost_s = spell.cost_s + verdict.cost_s
            self._spells[who] = replace(spell, cost_s=cost_s, until_s=now_s)

    def _say_recovered(self, latest_s: float) -> None:
        """Of those that were dropped by then."""
        for who, (dropped, since_s) in list(self._dropped.items()):
            if since_s <= latest_s:
                del self._dropped[who]
                self._announced.discard(who)
                self._log(log_line(dropped, self._job_id, self._host_of))
