"""The attempts of a job as a launcher has noted them: when each began, stepped and ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relkit.accounting.records import Record, What

COUNTED = "counted"


@dataclass(slots=True)
class Attempt:
    """One start of the job's workers on this node; times by its host's monotonic clock.

    Args:
        begun: its record.
        operation_s: when the first operation between ranks was finished; None: not seen.
        first, last: the first and the newest step that were seen; None: none was.
        done_s: when the first step had ended; None: not seen.
        load: the record of what was loaded; None: not seen.
        end_s: when it worked last; None: it was not seen to end.
    """

    begun: Record
    operation_s: float | None = None
    first: Record | None = None
    last: Record | None = None
    done_s: float | None = None
    load: Record | None = None
    end_s: float | None = None

    @property
    def worked_from_s(self) -> float | None:
        """When it was first seen to work; None: it was not."""
        return self.operation_s if self.first is None else self.first.at_s

    @property
    def steps_s(self) -> float:
        """From the begin of its first step to the begin of its newest."""
        if self.first is None or self.last is None:
            return 0.0
        return max(0.0, self.last.at_s - self.first.at_s)

    @property
    def steps(self) -> int:
        """How many steps that were, 0 or more."""
        if self.first is None or self.last is None:
            return 0
        return max(0, self.last.number - self.first.number)

    @property
    def is_counted(self) -> bool:
        """Its steps are numbered from 0 by relkit: they say nothing beyond this attempt."""
        return self.first is not None and self.first.name == COUNTED

    def take(self, record: Record) -> None:
        """Add what happened in it."""
        if record.what is What.OPERATION and self.operation_s is None:
            self.operation_s = record.at_s
        elif record.what is What.LOAD:
            self.load = record
        elif record.what is What.FIRST_STEP and self.first is None:
            self.first = self.last = record
        elif record.what is What.STEP_DONE and self.done_s is None:
            self.done_s = record.at_s
        elif record.what is What.LAST_STEP and self._is_newer(record):
            self.last = record

    def _is_newer(self, record: Record) -> bool:
        last = self.last
        return last is not None and record.number >= last.number and record.at_s >= last.at_s


def kept_steps_s(attempts: Sequence[Attempt]) -> float:
    """Time in steps of these attempts that no later attempt has done again, s.

    A step counts with the mean duration of the steps of its attempt.
    """
    kept_s, resumed_at = 0.0, float("inf")
    for attempt in reversed(attempts):
        if attempt.first is None or attempt.last is None:
            continue
        begin, end = attempt.first.number, min(attempt.last.number, resumed_at)
        if attempt.steps and end > begin:
            kept_s += attempt.steps_s * (end - begin) / attempt.steps
        resumed_at = min(resumed_at, begin)
    return kept_s
