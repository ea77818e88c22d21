"""Reads journals: whatever stands in one, it is records, or an error that says what to do."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.accounting import journal_folder
from relkit.accounting.journal import MAX_BYTES
from relkit.accounting.journal_folder import JournalFile
from relkit.accounting.records import MAX_LINE_BYTES, VERSION, Record, What, parse_record
from relkit.errors import BadInputFile
from relkit.files.private_file import read_private

_ADVICE = "Look at the launcher's own output; relkit leaves such a file as it is."


@dataclass(frozen=True, slots=True)
class JournalRead:
    """What a launcher has noted.

    Args:
        records: the first is its LAUNCHER; in the order in which they were written.
        problem: why not all of the file is in them, in words; "" where all is.
        is_live: the launcher still runs.
    """

    records: tuple[Record, ...]
    problem: str = ""
    is_live: bool = False


def parse_journal(data: bytes) -> JournalRead:
    """The records up to the first line that is none.

    Raises:
        ValueError: not even the first line is one, or it is of another version.
    """
    *lines, rest = data.split(b"\n")
    records: list[Record] = []
    problem = "its last line is cut off" if rest else ""
    for number, line in enumerate(lines, 1):
        try:
            record = parse_record(line)
            if (record.what is What.LAUNCHER) is not (number == 1):
                raise ValueError("the launcher's record is not the first")
        except ValueError as error:
            problem = f"line {number} and what follows are left out: {error}"
            break
        records.append(record)
    if not records:
        raise ValueError(problem or "it is empty")
    if records[0].number != VERSION:
        raise ValueError(f"it is of version {records[0].number}, this is relkit with {VERSION}")
    if not problem and any(record.what is What.FULL for record in records):
        problem = "it was full, later restarts are not in it"
    return JournalRead(tuple(records), problem)


def read_journal(file: JournalFile) -> JournalRead:
    """The records of a journal, with what the job did last.

    Raises:
        BadInputFile: it cannot be read, or is none.
    """
    # Before its records: a launcher that ends meanwhile has left its last one.
    is_live = file.is_live
    try:
        journal = parse_journal(read_private(file.path, MAX_BYTES))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputFile(f"{file.path}: {reason}", next_step=_ADVICE) from error
    return JournalRead(journal.records + _now(file, journal.records[-1]), journal.problem, is_live)


def _now(file: JournalFile, last: Record) -> tuple[Record, ...]:
    """What the launcher said last, where that is newer than its journal."""
    path = file.path.with_suffix(journal_folder.NOW_SUFFIX)
    try:
        data = read_private(path, 4 * MAX_LINE_BYTES)
        records = tuple(parse_record(line) for line in data.split(b"\n")[:-1])
    except (OSError, ValueError):
        return ()
    if last.what is What.ENDED or not records or records[-1].at_s < last.at_s:
        return ()
    return tuple(each for each in records if each.what in (What.LAST_STEP, What.ALIVE))
