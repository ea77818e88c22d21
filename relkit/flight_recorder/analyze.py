"""Dumps in files and folders -> one report of who is at fault."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relkit.findings import Report
from relkit.flight_recorder.find_files import DumpFile, NoDumps, find_dumps, find_sources
from relkit.flight_recorder.join_sources import JoinedJob, join, lone_rank
from relkit.flight_recorder.model import FlightDump
from relkit.flight_recorder.parse import parse_dump
from relkit.flight_recorder.plain_data import BadFlightDump, read_plain
from relkit.flight_recorder.source_findings import by_sources, with_sources
from relkit.flight_recorder.stacks_and_logs import StacksAndLogs
from relkit.flight_recorder.unranked import judged_unranked
from relkit.hang.attribute import attribute
from relkit.hang.model import HangVerdict
from relkit.hang.report import hang_report


def read_dump(file: DumpFile) -> FlightDump:
    """One rank's dump.

    Raises:
        BadFlightDump: the file is not one.
    """
    try:
        return parse_dump(read_plain(file.path), file.rank)
    except ValueError as error:
        raise BadFlightDump(f"{file.path} is not a flight-recorder dump: {error}") from error


def analyze(
    files: Sequence[DumpFile],
    beside: StacksAndLogs | None = None,
    *,
    argv: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """The report of the hang that the dumps show, with the stacks and logs beside them.

    Args:
        files: at most one a rank.
        beside: what `read_stacks_and_logs` gave.
        argv: the command line.
        progress: called with how many have been read, and how many there are.

    Raises:
        BadFlightDump: no dump is whole, and nothing else is there.
    """
    began, started = time.monotonic(), time.time()
    joined, verdict = judged(files, beside, progress=progress)
    duration_s = time.monotonic() - began
    report = hang_report(joined.job, verdict, argv=argv, started=started, duration_s=duration_s)
    return with_sources(report, joined)


def judged(
    files: Sequence[DumpFile],
    beside: StacksAndLogs | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[JoinedJob, HangVerdict]:
    """What all sources show of the job, and who is at fault; see analyze."""
    beside = StacksAndLogs() if beside is None else beside
    dumps, unusable = _read(files, progress)
    if not dumps and not beside:
        raise next(iter(unusable.values()))
    if not dumps and beside.unranked and not (beside.stacks or beside.logs or beside.raised):
        return judged_unranked(beside.unranked, beside)
    joined = join(dumps, beside, _source(files, beside), _reasons(unusable))
    read = {f.path: f"dump of rank {f.rank}" for f in files if f not in unusable}
    joined = replace(joined, used={**read, **joined.used})
    if not dumps and lone_rank(joined.job) is not None:
        joined = replace(joined, job=replace(joined.job, sees_all=False))
    return joined, by_sources(attribute(joined.job), joined)


def _read(
    files: Sequence[DumpFile], progress: Callable[[int, int], None] | None
) -> tuple[list[FlightDump], dict[DumpFile, BadFlightDump]]:
    """The dumps, and for each file that cannot be used what is wrong with it."""
    dumps, unusable = [], {}
    for number, file in enumerate(files, start=1):
        try:
            dump = read_dump(file)
            if dump.is_empty and len(files) > 1:
                raise BadFlightDump(
                    f"{file.path} is not a flight-recorder dump: it holds no operation"
                )
            dumps.append(dump)
        except BadFlightDump as error:
            unusable[file] = error
        if progress is not None:
            progress(number, len(files))
    return dumps, unusable


def _reasons(unusable: Mapping[DumpFile, BadFlightDump]) -> dict[DumpFile, str]:
    """What is wrong with each file, without its name."""
    words = {file: str(error).removeprefix(f"{file.path} ") for file, error in unusable.items()}
    return {
        file: text.removeprefix("is not a flight-recorder dump: ").removeprefix("it ")
        for file, text in words.items()
    }


def _source(files: Sequence[DumpFile], beside: StacksAndLogs) -> str:
    paths = [file.path for file in files]
    paths = paths or [
        *(file.path for file in beside.stacks.values()),
        *(log.path for log in beside.logs),
        *(path for _, path in beside.raised.values()),
    ]
    return str(Path(os.path.commonpath([path.parent.absolute() for path in paths])))


__all__ = [
    "DumpFile",
    "NoDumps",
    "analyze",
    "find_dumps",
    "find_sources",
    "judged",
    "read_dump",
]
