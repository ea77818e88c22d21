"""Tells the terminal who is slow, and who is not any more, without repeating itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.launch.job.settings import Log
from relkit.launch.straggler.exclusion import log_line, who_is
from relkit.log_lines import Level, Line
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.model import Cause, Verdict

# What has cost the job less, or less of its time, is in the report and not worth a line: every job
# starts unevenly.
MIN_COST_S = 1.0
_MIN_SHARE = 0.01
# A straggler that recovers and slows down again is announced again only after this time. What it
# cost before counts as well if it slows down sooner.
_QUIET_S = 60.0
# Who is as fast as the others for less may only be lucky for a moment.
_RECOVERED_S = 10.0


@dataclass(frozen=True, slots=True)
class _Spell:
    """Verdicts on one straggler for one reason, with short times between them.

    Args:
        cause, first_step: of the first; began_s: when it was raised, monotonic time.
        cost_s: of those that were dropped; dropped: the newest, where it does not hold any more;
            dropped_s: since when.
        is_said: the terminal has a line about it, and none that it is over.
    """

    cause: Cause
    first_step: int
    began_s: float
    cost_s: float = 0.0
    dropped: RaisedVerdict | None = None
    dropped_s: float = math.inf
    is_said: bool = False

    def goes_on(self, verdict: Verdict, now_s: float) -> bool:
        """Whether a verdict that is raised now belongs to it."""
        return self.cause is verdict.cause and now_s - self.dropped_s < _QUIET_S

    def drop(self, over: RaisedVerdict, now_s: float) -> _Spell:
        """Its newest verdict does not hold any more."""
        cost_s = self.cost_s + over.verdict.cost_s
        return replace(self, cost_s=cost_s, dropped=over, dropped_s=now_s)

    def go_on(self, verdict: Verdict) -> _Spell:
        """With a verdict that is raised after one was dropped.

        What it has cost counts from its first step on. Steps for which the dropped verdict has been
        counted are not to be counted twice.
        """
        cost_s = self.cost_s
        if self.dropped is not None:
            before = self.dropped.verdict
            steps = max(1, self.dropped.ended_step - before.first_step + 1)
            again = self.dropped.ended_step - max(verdict.first_step, before.first_step) + 1
            cost_s -= before.cost_s * max(0, again) / steps
        return replace(self, cost_s=cost_s, dropped=None, dropped_s=math.inf)


class VerdictAnnouncer:
    """Call announce() after every look, and end() after the last.

    Args:
        job_id: for the commands in the line; host_of: by rank, as far as it is known.
        log: one line to the terminal.
    """

    def __init__(self, job_id: str, host_of: Mapping[int, str], log: Log) -> None:
        self._job_id, self._host_of, self._log = job_id, host_of, log
        self._spells: dict[str, _Spell] = {}
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
            self._note(change, now_s)
        for raised in holding:
            who = who_is(raised.verdict, self._host_of)
            spell = self._spells.get(who)
            if spell is None or spell.is_said or now_s < self._quiet_until_s.get(who, now_s):
                continue
            if not raised.verdict.accuses:
                continue
            cost_s = spell.cost_s + raised.verdict.cost_s
            if cost_s >= max(MIN_COST_S, _MIN_SHARE * (now_s - spell.began_s)):
                self._spells[who] = replace(spell, is_said=True)
                self._quiet_until_s[who] = now_s + _QUIET_S
                all_of_it = replace(raised.verdict, first_step=spell.first_step, cost_s=cost_s)
                self._say(replace(raised, verdict=all_of_it))

    def end(self) -> None:
        """The workers end: nobody who has recovered can slow down again."""
        self._say_recovered(math.inf)

    def _note(self, change: RaisedVerdict, now_s: float) -> None:
        who, verdict = who_is(change.verdict, self._host_of), change.verdict
        spell = self._spells.get(who)
        if not change.holds:
            if spell is not None:
                self._spells[who] = spell.drop(change, now_s)
        elif spell is not None and spell.goes_on(verdict, now_s):
            self._spells[who] = spell.go_on(verdict)
        else:
            self._spells[who] = _Spell(verdict.cause, verdict.first_step, now_s)

    def _say_recovered(self, latest_s: float) -> None:
        """Of those that were dropped by then."""
        for who, spell in self._spells.items():
            if spell.is_said and spell.dropped is not None and spell.dropped_s <= latest_s:
                self._spells[who] = replace(spell, is_said=False)
                self._say(spell.dropped)

    def _say(self, raised: RaisedVerdict) -> None:
        # A verdict is no line that could be left out.
        level = Level.ERROR if raised.holds else Level.WARNING
        self._log(Line(log_line(raised, self._job_id, self._host_of), level, "straggler"))
