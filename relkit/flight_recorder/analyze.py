"""Dumps in files and folders -> one report of who is at fault."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.findings import Report
from relkit.flight_recorder.join_sources import JoinedJob, join, lone_rank
from relkit.flight_recorder.model import FlightDump
from relkit.flight_recorder.parse import parse_dump
from relkit.flight_recorder.plain_data import BadFlightDump, looks_like_a_dump, read_plain
from relkit.flight_recorder.source_findings import by_sources, with_sources
from relkit.flight_recorder.stacks_and_logs import (
    StacksAndLogs,
    files_below,
    is_text_name,
    read_stacks_and_logs,
    written_ns,
)
from relkit.hang.attribute import attribute
from relkit.hang.model import Category, HangVerdict
from relkit.hang.report import hang_report

# nccl_trace_rank_3, dump-3.json, rank3.pkl: the rank is the last number of the name.
_NAME = re.compile(r".*?(\d{1,9})(\.json|\.pkl|\.pickle|\.bin)?")


class NoDumps(UsageProblem):
    """Nothing in the folders that were named looks like a dump of a flight recorder."""


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file that may be a rank's dump.

    Args:
        path: of it; rank: by its name.
    """

    path: Path
    rank: int


def find_dumps(paths: Sequence[Path]) -> list[DumpFile]:
    """The files to read: those named, and what looks like a dump in folders.

    A dump's name ends with its rank, and it begins as a pickle or as JSON: a folder such as /tmp
    holds other files too. Of two files of one rank the newer one counts.

    Args:
        paths: files and folders; folders are searched with all that is below them.

    Raises:
        NoDumps: there is none.
        UsageProblem: a path does not exist, or a folder holds too many files.
    """
    newest: dict[int, tuple[int, DumpFile]] = {}
    for path in paths:
        for file in files_below(path):
            name = _NAME.fullmatch(file.name)
            if name is None:
                if file == path and not is_text_name(file):
                    raise UsageProblem(
                        f"{file} does not say of which rank it is",
                        next_step="Its name must end with the rank, as in nccl_trace_rank_3.",
                    )
                continue
            if (file != path or is_text_name(file)) and not looks_like_a_dump(file):
                continue
            dump = DumpFile(file, int(name[1]))
            when_ns = written_ns(file)
            if dump.rank not in newest or when_ns > newest[dump.rank][0]:
                newest[dump.rank] = (when_ns, dump)
    if not newest:
        raise NoDumps(
            f"no dump in {', '.join(map(str, paths))}",
            next_step="Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 for the job: "
            "dumps are then written as TORCH_FR_DUMP_TEMP_FILE (or TORCH_NCCL_DEBUG_INFO_TEMP_FILE)"
            " names them, with the rank at the end.",
        )
    return [newest[rank][1] for rank in sorted(newest)]


def find_sources(paths: Sequence[Path]) -> tuple[list[DumpFile], StacksAndLogs]:
    """The dumps to read, and what lies beside them: at least one of both.

    Args:
        paths: files and folders; folders are searched with all that is below them.

    Raises:
        NoDumps: there is neither; UsageProblem: as `find_dumps`.
    """
    beside = read_stacks_and_logs(paths)
    try:
        return find_dumps(paths), beside
    except NoDumps as error:
        if beside:
            return [], beside
        if beside.left_out:
            raise NoDumps(f"{error}; {beside.left_out[0]}", next_step=error.next_step) from error
        raise


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
        BadFlightDump: one of them is not a dump.
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
    dumps = []
    for number, file in enumerate(files, start=1):
        dumps.append(read_dump(file))
        if progress is not None:
            progress(number, len(files))
    beside = StacksAndLogs() if beside is None else beside
    joined = join(dumps, beside, _source(files, beside))
    if not dumps and lone_rank(joined.job) is not None:
        joined = replace(joined, job=replace(joined.job, sees_all=False))
    verdict = without_unneeded_absence(attribute(joined.job))
    return joined, by_sources(verdict, joined)


def _source(files: Sequence[DumpFile], beside: StacksAndLogs) -> str:
    paths = [file.path for file in files]
    paths = paths or [
        *(file.path for file in beside.stacks.values()),
        *(log.path for log in beside.logs),
    ]
    return str(Path(os.path.commonpath([path.parent.absolute() for path in paths])))


def without_unneeded_absence(verdict: HangVerdict) -> HangVerdict:
    """A rank without a dump is accused only where no other rank explains the hang.

    A launcher that hears nothing of a rank has good reason to suspect it. A file may be missing
    for many reasons, although a rank that was ending itself writes none either.
    """
    others = tuple(c for c in verdict.culprits if c.category is not Category.ABSENT)
    return replace(verdict, culprits=others) if others else verdict
