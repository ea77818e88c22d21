"""What a host's launcher has noted of its job, kept beside the ranks' recordings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relkit.accounting.journal_folder import journals_of
from relkit.accounting.read_journal import read_journal
from relkit.accounting.records import Record, What, parse_record
from relkit.errors import BadInputFile, RelkitError
from relkit.files.input_file import read_input
from relkit.output import write_atomic
from relkit.text.foreign_json import parse_object
from relkit.text.job_id import safe_job_id
from relkit.text.printable import printable_line
from relkit.timeline.model import HostEvent

SUFFIX = ".rklauncher"
_LIMIT_BYTES = 8 << 20
_MAX_TEXT = 300
# Seconds on this machine's monotonic clock that cannot be.
_MAX_S = 1e10
# What says nothing of a moment.
_QUIET = (What.LAUNCHER, What.ALIVE, What.FULL, What.LAST_STEP, What.STANDBY)


def write_launcher_notes(job_id: str, folder: Path, host: str, clock: str) -> Path | None:
    """Copy what the launchers of this host have noted of a job; None where there is nothing.

    Args:
        clock: of this host, as of its ranks.
    """
    lines: list[str] = []
    for file in journals_of(job_id):
        try:
            records = read_journal(file).records
        except BadInputFile:
            continue
        lines += [each.to_line().decode() for each in records]
    if not lines:
        return None
    offset_s = time.time() - time.monotonic()
    document = {"host": host, "clock": clock, "unix_offset_s": offset_s, "records": lines}
    path = folder / f"{safe_job_id(host)}{SUFFIX}"
    write_atomic(path, json.dumps(document))
    return path


def read_launcher_notes(path: Path) -> tuple[HostEvent, ...]:
    """What a launcher has noted, by begin; records that are none are left out.

    Raises:
        BadInputFile: the file cannot be read, or is none.
    """
    try:
        plain = parse_object(read_input(path, _LIMIT_BYTES))
        host, clock, offset_s = _text(plain["host"]), _text(plain["clock"]), plain["unix_offset_s"]
        if not isinstance(offset_s, (int, float)) or not -_MAX_S < offset_s < _MAX_S:
            raise ValueError("its clock cannot be")
        lines = plain["records"]
        if not isinstance(lines, list):
            raise ValueError("it holds no records")
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputFile(f"{path}: {reason}", next_step="Leave the file out.") from error
    events = [_event(record, host, clock, offset_s) for record in _records(lines)]
    return tuple(sorted(events, key=lambda event: event.begin_ns))


def _records(lines: list[Any]) -> Iterator[Record]:
    for line in lines:
        if not isinstance(line, str):
            continue
        try:
            record = parse_record(line.encode("utf-8", "replace"))
        except (ValueError, RelkitError):
            continue
        if record.what not in _QUIET:
            yield record


def _event(record: Record, host: str, clock: str, offset_s: float) -> HostEvent:
    end_ns = int((record.at_s + offset_s) * 1e9)
    lasted_s = record.seconds if record.what in (What.PHASE, What.LOAD) else 0.0
    name = str(record.what)
    if record.name:
        name = f"{name}: {record.name}"
    counted = (What.SAVED, What.LOAD, What.FIRST_STEP, What.STEP_DONE, What.ATTEMPT)
    if record.what in counted and record.number >= 0:
        name = f"{name} {record.number}"
    is_of_rank = record.what in (What.FAULT, What.SUSPICION)
    return HostEvent(
        clock,
        host,
        end_ns - int(lasted_s * 1e9),
        end_ns,
        printable_line(name)[:_MAX_TEXT],
        printable_line(record.text)[:_MAX_TEXT],
        record.number if is_of_rank else -1,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a name in it is no text")
    return value[:_MAX_TEXT]
