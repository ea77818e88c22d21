"""Suspicions of a hang as a launcher has noted them: how many there were, and what they became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relkit.accounting.records import Record, What


@dataclass(frozen=True, slots=True)
class Suspicions:
    """Of one launcher's run.

    Args:
        began: how many there were.
        went_on: after how many the job went on by itself.
        became_verdicts: how many became the verdict on a hang.
        present: the newest one, in words, where that is not over; else "".
    """

    began: int = 0
    went_on: int = 0
    became_verdicts: int = 0
    present: str = ""

    @property
    def words(self) -> str:
        """ "3: 2 came and went, 1 became a verdict"."""
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (self.went_on, "came and went"),
                (self.became_verdicts, f"became {_verdict(self.became_verdicts)}"),
                (self.began - self.went_on - self.became_verdicts, "not decided"),
            )
            if count > 0
        ]
        return f"{self.began:,}" + (f": {', '.join(parts)}" if parts else "")


def _verdict(count: int) -> str:
    return "a verdict" if count == 1 else "verdicts"


def suspicions_in(records: Sequence[Record]) -> Suspicions:
    """Those of one journal."""
    began = went_on = verdicts = 0
    # Those that are not over, by their rank.
    present: dict[int, str] = {}
    for record in records:
        if record.what in (What.ATTEMPT, What.FAULT, What.ENDED):
            present.clear()
        if record.what is not What.SUSPICION:
            continue
        began += record.name == "began"
        went_on += record.name == "went on"
        verdicts += record.name == "verdict"
        was_present = present.pop(record.number, None) is not None
        if record.name == "began":
            present[record.number] = record.text
        elif not was_present:
            # It has come to be about other ranks since it began.
            present.clear()
    return Suspicions(began, went_on, verdicts, next(reversed(present.values()), ""))
