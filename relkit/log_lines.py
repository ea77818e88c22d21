"""relkit's own lines on stderr: which of them are shown, and as what.

There is one way for all of them: `say`. A verdict is no line that could be left out: `say_report`
always shows it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from relkit.findings import Finding, Report, Status
from relkit.output import as_text, shown, use_colour
from relkit.text.printable import printable, printable_json

JSON, TEXT = "json", "text"


class Level(IntEnum):
    """How much a line matters; the numbers are those of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40

    def __str__(self) -> str:
        return self.name.lower()


class Line(str):
    """A line that knows how much it matters; where a line is wanted it is one.

    Attributes:
        level: how much it matters.
        event: an id by which machines know it: of a finding, or a word such as "suspicion".
        rank: that it is about; None for none, or several.
    """

    level: Level
    event: str
    rank: int | None

    def __new__(
        cls, text: str, level: Level = Level.INFO, event: str = "", rank: int | None = None
    ) -> Line:
        """Make a line of a text."""
        line = super().__new__(cls, text)
        line.level, line.event, line.rank = level, event, rank
        return line


def warning(text: str, event: str = "", rank: int | None = None) -> Line:
    """Mark a line as something that somebody should look at."""
    return Line(text, Level.WARNING, event, rank)


@dataclass(slots=True)
class _Lines:
    """What is shown of lines, and what machines are told with each.

    Args:
        level: the lowest that is shown; is_json: as JSON.
        job, node: "" where not known.
    """

    level: Level = Level.INFO
    is_json: bool = False
    job: str = ""
    node: str = ""


_LINES = _Lines()
_OF_STATUS = {Status.FAIL: Level.ERROR, Status.WARN: Level.WARNING, Status.UNKNOWN: Level.WARNING}


def set_up(level: Level, *, is_json: bool) -> None:
    """Choose the lowest level that is shown, and whether lines are JSON."""
    _LINES.level, _LINES.is_json = level, is_json


def name_job(job: str = "", node: str = "") -> None:
    """Say which job all further lines are about, and on which node this process runs."""
    _LINES.job, _LINES.node = job or _LINES.job, node or _LINES.node


def is_quiet() -> bool:
    """Nothing is to be shown that is not for a log: a progress bar is not."""
    return _LINES.is_json or _LINES.level > Level.INFO


def writes_json() -> bool:
    """Lines are JSON."""
    return _LINES.is_json


def as_variables() -> dict[str, str]:
    """Give a relkit that this one starts the same ways."""
    return {
        "RELKIT_LOG_LEVEL": str(_LINES.level),
        "RELKIT_LOG_FORMAT": JSON if _LINES.is_json else TEXT,
    }


def say(text: str, files: Sequence[str] = ()) -> None:
    """Show one line, apart from the job's own output.

    Args:
        text: the line, or a Line; what stands in it may come from elsewhere.
        files: that it is about, listed below it.
    """
    line = text if isinstance(text, Line) else Line(text, _level_of(text))
    if line.level < _LINES.level:
        return
    if _LINES.is_json:
        about = {"event": line.event, "rank": line.rank, "files": list(files)}
        _write(_document(line.level, str(line), **about))
    else:
        _write(
            "".join([f"relkit: {shown(str(line))}\n", *(f"  {shown(each)}\n" for each in files)])
        )


def say_progress(text: str) -> None:
    """Show what a command has done: without the name in front, as it is part of its output."""
    if _LINES.is_json:
        say(text)
    elif _LINES.level <= Level.INFO:
        _write(f"{shown(text)}\n")


def say_error(text: str, next_step: str = "") -> None:
    """Show why a command ends; never left out."""
    if _LINES.is_json:
        _write(_document(Level.ERROR, text, next_step=next_step))
        return
    following = f"  next: {shown(next_step)}\n" if next_step else ""
    _write(f"relkit: {shown(text)}\n{following}")


def say_as_it_is(text: str) -> None:
    """Show what another program says of a job's failure; never left out."""
    _write(_document(Level.ERROR, text) if _LINES.is_json else f"{printable(text)}\n")


def say_report(report: Report, *, apart: bool = False) -> None:
    """Show a verdict; never left out.

    Args:
        report: what was found out.
        apart: with an empty line before and after it.
    """
    if _LINES.is_json:
        _write("".join(_of_finding(finding) for finding in report.findings))
        return
    text = as_text(report, colour=use_colour(sys.stderr))
    # One write: the job's own lines must not land inside the verdict.
    _write(f"\n{text}\n" if apart else text)


def _level_of(text: str) -> Level:
    return Level.WARNING if text.startswith("warning: ") else Level.INFO


def _of_finding(finding: Finding) -> str:
    ranks = finding.ranks
    return _document(
        _OF_STATUS.get(finding.status, Level.INFO),
        finding.title,
        event=finding.id,
        status=finding.status.value,
        rank=int(ranks) if ranks.isdecimal() else None,
        ranks=ranks,
        nodes=finding.nodes,
        reasons=list(finding.reasons),
        next_step=finding.advice,
    )


def _document(level: Level, message: str, **about: object) -> str:
    now_s = time.time()
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))
    plain: dict[str, object] = {
        "time": f"{moment}.{int(now_s % 1 * 1000):03}Z",
        "level": str(level),
        "job": _LINES.job,
        "node": _LINES.node,
        **about,
        "message": message,
    }
    kept = {key: value for key, value in plain.items() if value not in ("", None, [])}
    # In ASCII: a stream of another alphabet would write "\xe9", which is no JSON.
    return printable_json(json.dumps(kept)) + "\n"


def _write(text: str) -> None:
    stream = sys.stderr
    # Whoever reads it may have gone, or its disk be full: a job does not end of that.
    with suppress(OSError, ValueError):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            # A terminal of another alphabet.
            stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))
        stream.flush()
