"""Tracebacks in a job's log -> which rank ended by which exception, and where; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from relkit.hang.frames import is_user_code, place
from relkit.stacks.model import Frame

SIGNS = (b"Traceback (most recent call last)", b"Fatal Python error: ")
_MAX_RANKS = 1 << 16
_MAX_LINE = 4096
_MAX_FRAMES = 1000
_RANK = re.compile(r"\[rank(\d{1,7})\]:? ?", re.ASCII)
_BEGIN = "Traceback (most recent call last):"
_FATAL = re.compile(r"Fatal Python error: (.{1,300})")
_FRAME = re.compile(r'\s{1,8}File "(.{1,1024})", line (\d{1,9}), in (.{1,1024})')
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: (.*))?$", re.ASCII)
# What a script ends with on purpose, or is asked to end with.
_NO_ERROR = re.compile(r"(SystemExit|KeyboardInterrupt)\b")


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that ended a rank.

    Args:
        rank: whose; error: `KeyError: 'label'`; where: `w/train.py:84 step`, "" where not known.
    """

    rank: int
    error: str
    where: str


@dataclass(slots=True)
class _Open:
    frames: list[Frame] = field(default_factory=list)


def parse_tracebacks(lines: Iterable[str], rank: int | None = None) -> list[Raised]:
    """The last exception of each rank that the text shows one of.

    Args:
        lines: of the log, in its order.
        rank: whose log it is by its name; None where lines say that themselves.
    """
    open_: dict[int, _Open] = {}
    raised: dict[int, Raised] = {}
    for text in lines:
        line = text[:_MAX_LINE].rstrip("\r\n")
        mark = _RANK.match(line)
        whose = int(mark[1]) if mark else rank
        if whose is None or (whose not in raised and len(raised) == _MAX_RANKS):
            continue
        line = line[mark.end() :] if mark else line
        if _BEGIN in line:
            open_[whose] = _Open()
        elif (fatal := _FATAL.match(line)) is not None:
            raised[whose] = Raised(whose, f"Fatal Python error: {fatal[1]}", "")
        elif (now := open_.get(whose)) is not None and not line.startswith((" ", "\t")):
            exception = _EXCEPTION.match(line)
            if exception is not None and now.frames:
                raised[whose] = Raised(whose, line[:300], _where(now.frames))
            del open_[whose]
        elif now is not None and (frame := _FRAME.match(line)) is not None:
            now.frames.append(Frame(frame[3], f"{frame[1]}:{frame[2]}"))
            del now.frames[:-_MAX_FRAMES]
    return [each for each in raised.values() if not _NO_ERROR.match(each.error)]


def _where(frames: list[Frame]) -> str:
    """The innermost line of somebody's own code, else the innermost of all."""
    own = [frame for frame in frames if is_user_code(frame)]
    return place((own or frames)[-1])
