"""The error files of torchelastic (error.json): what `@record` keeps of a worker's exception."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from relkit.flight_recorder.tracebacks import SIGN, Raised, new_traceback
from relkit.text.printable import printable_line
from relkit.why.clocks import clock_of_unix
from relkit.why.model import Clock, Sighting, Speaker
from relkit.why.rules.exceptions import GENERIC, cause_of_exception
from relkit.why.rules.line_rules import rule_of
from relkit.why.rules.told import Kind

_MAX_TEXT = 400
_MAX_STACK_LINES = 2000
_NAME = re.compile(r"((?:\w+\.)*\w+)(?:: ?(.*))?", re.DOTALL)


def is_error_file(plain: object) -> bool:
    """Whether a document of JSON is one of torchelastic's."""
    if not isinstance(plain, dict) or "message" not in plain:
        return False
    message = plain["message"]
    return isinstance(message, str) or (isinstance(message, dict) and "message" in message)


def read_error_file(plain: dict[str, Any], path: Path, speaker: Speaker) -> Sighting | None:
    """The exception of a worker; None where the file holds none.

    Args:
        plain: the document; path: of the file; speaker: what its name shows of whose it is.
    """
    message = plain["message"]
    if isinstance(message, str):
        return _sighting(message, "", path, speaker, None)
    text, extra = message["message"], message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    stack = extra.get("py_callstack")
    return _sighting(
        text if isinstance(text, str) else str(text)[:_MAX_TEXT],
        stack if isinstance(stack, str) else "",
        path,
        speaker,
        clock_of_unix(str(extra.get("timestamp"))),
    )


def _sighting(
    text: str, stack: str, path: Path, speaker: Speaker, clock: Clock | None
) -> Sighting | None:
    """An exception as a launcher keeps it.

    Args:
        text: `KeyError: 'label'`; stack: Python's traceback, "" where there is none.
        path, speaker, clock: of the file.
    """
    raised = _raised(stack) if stack else None
    first = (text.strip() or (raised.text if raised else "")).split("\n")[0]
    name = _NAME.match(first)
    if name is None:
        return None
    cause, kind = cause_of_exception(name[1])
    known = rule_of(first)
    if known is not None and (kind is not Kind.LAUNCHER or cause in GENERIC):
        cause, kind = known[0].cause, known[0].kind
    code = raised.where if raised else ""
    return Sighting(
        cause, kind, printable_line(first)[:_MAX_TEXT], path, 0, 0, speaker, clock, code
    )


def _raised(stack: str) -> Raised | None:
    traceback = new_traceback(SIGN)
    for number, line in enumerate(stack.splitlines()[-_MAX_STACK_LINES:]):
        traceback.add(line, number, 0)
    return traceback.raised[-1] if traceback.raised else None
