"""Which verdicts hold, and which were dropped: what turns the judgement of each step into news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relkit.straggler.history_types import STILL_HOLDS, RaisedVerdict
from relkit.straggler.model import Cause, Subject, Verdict

_MAX_PAST = 200


class VerdictLog:
    """Call hold() with all verdicts of a step; it returns those that were raised or dropped.

    One that is not sure enough to accuse anybody is not raised until it is.

    Args:
        past: verdicts of earlier attempts of the job, dropped.
    """

    def __init__(self, past: Sequence[RaisedVerdict] = ()) -> None:
        self._holding: dict[tuple[str, ...], RaisedVerdict] = {}
        self._dropped = list(past)[-_MAX_PAST:]
        # The newest step; -1 before the first.
        self.step = -1

    @property
    def holding(self) -> tuple[RaisedVerdict, ...]:
        """The verdicts that hold, as the last step leaves them."""
        return tuple(self._holding.values())

    @property
    def dropped(self) -> tuple[RaisedVerdict, ...]:
        """The verdicts that do not hold any more, oldest first."""
        return tuple(self._dropped)

    def all(self) -> tuple[RaisedVerdict, ...]:
        """All of them, those that hold as dropped with the last step."""
        over = (replace(held, ended_step=self.step) for held in self._holding.values())
        return (*self._dropped, *over)[-_MAX_PAST:]

    def holds(self, verdict: Verdict) -> bool:
        """Whether there is a verdict on the same rank, host or link."""
        return _who(verdict) in self._holding

    def drop_ranks(self) -> None:
        """Ranks are compared with others from now on. Nobody is told: none has become faster."""
        for who, held in list(self._holding.items()):
            if held.verdict.subject is Subject.RANK:
                self._drop(who)

    def hold(self, verdicts: Sequence[Verdict], step: int) -> list[RaisedVerdict]:
        """Take one step.

        Args:
            verdicts: all that are true after it, and evidence that was dismissed (cause noise).

        Returns:
            The verdicts that were raised or dropped.
        """
        self.step = step
        # Dismissed evidence is kept for the report, and nobody is told of it.
        for verdict in verdicts:
            if verdict.cause is Cause.NOISE and _who(verdict) not in self._holding:
                self._keep(RaisedVerdict(verdict, step, step))
        now = {_who(verdict): verdict for verdict in verdicts if verdict.cause is not Cause.NOISE}
        changes = []
        for who, held in list(self._holding.items()):
            if who in now:
                self._holding[who] = replace(held, verdict=now.pop(who))
                continue
            over = self._drop(who)
            # A host that is named in the place of its link has not become faster.
            if not any(set(over.verdict.ends) & set(verdict.ends) for verdict in verdicts):
                changes.append(over)
        for who, verdict in now.items():
            if not verdict.accuses:
                continue
            self._holding[who] = RaisedVerdict(verdict, step, STILL_HOLDS)
            changes.append(self._holding[who])
        return changes

    def _drop(self, who: tuple[str, ...]) -> RaisedVerdict:
        over = replace(self._holding.pop(who), ended_step=self.step)
        self._keep(over)
        return over

    def _keep(self, over: RaisedVerdict) -> None:
        self._dropped = [*self._dropped, over][-_MAX_PAST:]


def _who(verdict: Verdict) -> tuple[str, ...]:
    if verdict.subject is Subject.RANK:
        return (verdict.subject.value, str(verdict.rank))
    # A host may have a slow network, and be slow itself.
    return (verdict.subject.value, str(verdict.cause is Cause.NETWORK), *verdict.ends)
