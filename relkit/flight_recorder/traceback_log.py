"""Tracebacks in a job's log -> which rank ended by which exception, and where; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from relkit.flight_recorder.tracebacks import SIGN, Traceback, begins_traceback, new_traceback

SIGNS = (SIGN.encode(), b"Fatal Python error: ")
_MAX_RANKS = 1 << 16
_MAX_LINE = 4096
_MAX_ERROR = 300
_RANK = re.compile(r"\[rank(\d{1,7})\]:? ?", re.ASCII)
_FATAL = re.compile(r"Fatal Python error: (.{1,300})")
# What a script ends with on purpose, or is asked to end with.
_NO_ERROR = re.compile(r"(SystemExit|KeyboardInterrupt)\b")


@dataclass(frozen=True, slots=True)
class EndedBy:
    """The exception that ended a rank.

    Args:
        rank: whose; error: `KeyError: 'label'`; where: `w/train.py:84 step`, "" where not known.
    """

    rank: int
    error: str
    where: str


def parse_tracebacks(lines: Iterable[str], rank: int | None = None) -> list[EndedBy]:
    """The last exception of each rank that the text shows one of.

    Args:
        lines: of the log, in its order.
        rank: whose log it is by its name; None where lines say that themselves.
    """
    open_: dict[int, Traceback] = {}
    ended: dict[int, EndedBy] = {}
    for text in lines:
        line = text[:_MAX_LINE].rstrip("\r\n")
        mark = _RANK.match(line)
        whose = int(mark[1]) if mark else rank
        if whose is None or (whose not in ended and len(ended) == _MAX_RANKS):
            continue
        line = line[mark.end() :] if mark else line
        traceback = open_.get(whose)
        if traceback is not None:
            is_taken = traceback.add(line, 0, 0)
            last = traceback.raised[-1] if traceback.raised else None
            if last is not None and last.where:
                ended[whose] = EndedBy(whose, last.text[:_MAX_ERROR], last.where)
            if traceback.is_done:
                del open_[whose]
            if is_taken:
                continue
        if begins_traceback(line):
            open_[whose] = new_traceback(line)
        elif (fatal := _FATAL.match(line)) is not None:
            open_.pop(whose, None)
            ended[whose] = EndedBy(whose, f"Fatal Python error: {fatal[1]}", "")
    return [each for each in ended.values() if not _NO_ERROR.match(each.error)]
