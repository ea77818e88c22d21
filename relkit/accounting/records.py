"""The records of a launcher's journal: one line of JSON each."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from relkit.text.foreign_json import parse_json

VERSION = 1
# Of one record's line, with its line end.
MAX_LINE_BYTES = 1024
_MAX_TEXT = 300
# Larger numbers are no step, rank or time: about 30,000 years in seconds.
_MAX_NUMBER = 1e12


class What(str, Enum):
    """What a record is about; `at_s` is when it was, unless it says otherwise.

    LAUNCHER: the first record: `name` is the host, `text` the job's id, `number` the format.
    ATTEMPT: workers are started; `number` of the attempt, `node`, `nodes` and `world_size`;
        `standbys`: how many of them were warm standbys.
    PHASE: `name` took `seconds`, and ended now.
    OPERATION: the first operation between ranks was finished.
    LOAD: a checkpoint of step `number` (-1: none) was loaded in `seconds`; `text`: from where.
    FIRST_STEP: step `number` began, the first that the recorder has seen of the attempt; `name` is
        "counted" where the loop does not number its steps itself.
    STEP_DONE: that step had ended.
    LAST_STEP: step `number` began, the newest so far.
    FAULT: of the kind `name`, in words `text`; it had begun at most `seconds` before. `number`:
        the rank at fault, -1 where it is none.
    SAVED: step `number` was saved by `name` after the fault.
    STANDBY: `number` warm standbys wait, the largest with `size_mb` MB of memory (PSS; 0: not
        known).
    SUSPICION: rank `number` (-1: not one rank) seemed to hold the job up, as `text` says; `name`
        is what became of it: it "began", the job "went on", or it became a "verdict".
    TIMELINE: `text` is the launcher's timeline folder.
    TOTAL: the loop will end after step `number` - 1.
    HEALTH: the job "hung", or "goes on" after that: `name`.
    ALIVE: the launcher lived.
    ENDED: the launcher ended its run: `name` says how, `text` why.
    FULL: the journal has no room for more.
    """

    LAUNCHER = "launcher"
    ATTEMPT = "attempt"
    PHASE = "phase"
    OPERATION = "operation"
    LOAD = "load"
    FIRST_STEP = "first step"
    STEP_DONE = "step done"
    LAST_STEP = "last step"
    FAULT = "fault"
    SAVED = "saved"
    STANDBY = "standby"
    SUSPICION = "suspicion"
    TIMELINE = "timeline"
    TOTAL = "total"
    HEALTH = "health"
    ALIVE = "alive"
    ENDED = "ended"
    FULL = "full"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened; see What for what the fields mean.

    Args:
        at_s: monotonic clock of the launcher's host, s; unix_s: wall clock there, s.
        seconds: a duration, by the monotonic clock.
    """

    what: What
    at_s: float
    unix_s: float
    name: str = ""
    text: str = ""
    seconds: float = 0.0
    number: int = -1
    node: int = 0
    nodes: int = 0
    world_size: int = 0
    standbys: int = 0
    size_mb: float = 0.0

    def rounded(self) -> Record:
        """As it is read again: times and durations to the microsecond."""
        rounded: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            rounded[field.name] = round(value, 6) if isinstance(value, float) else value
        return Record(**rounded)

    def to_line(self) -> bytes:
        """As a line of at most MAX_LINE_BYTES; text that is too long is cut."""
        plain: dict[str, Any] = {"what": self.what.value}
        rounded = self.rounded()
        for field in fields(self)[1:]:
            value = getattr(rounded, field.name)
            if isinstance(value, str):
                value = value.encode("ascii", "replace").decode()[:_MAX_TEXT]
            if value != field.default:
                plain[field.name] = value
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


_KINDS = {
    field.name: {"float": (int, float), "int": (int,), "str": (str,)}[str(field.type)]
    for field in fields(Record)[1:]
}


def parse_record(line: bytes) -> Record:
    """The inverse of `Record.to_line`; members that are not known are left out.

    Raises:
        ValueError: it is no record.
    """
    if len(line) > MAX_LINE_BYTES:
        raise ValueError("a line is too long")
    plain = parse_json(line)
    if not isinstance(plain, dict):
        raise ValueError("a line is not an object")
    members: dict[str, Any] = {}
    for name, kinds in _KINDS.items():
        if name not in plain:
            continue
        value = plain[name]
        # bool is an int, and no number here.
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"{name} is not what it should be")
        # Also false for what is no number, and an int of any length can be compared.
        if not isinstance(value, str) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise ValueError(f"{name} is out of range")
        members[name] = value
    if "at_s" not in members or "unix_s" not in members:
        raise ValueError("a record has no time")
    if members.get("seconds", 0.0) < 0.0:
        raise ValueError("a duration is negative")
    return Record(What(plain.get("what")), **members)
