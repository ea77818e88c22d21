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
from relkit.flight_recorder.job_view import job_view
from relkit.flight_recorder.model import FlightDump
from relkit.flight_recorder.parse import parse_dump
from relkit.flight_recorder.plain_data import BadFlightDump, looks_like_a_dump, read_plain
from relkit.hang.attribute import attribute
from relkit.hang.model import Category, HangVerdict, JobView
from relkit.hang.report import hang_report

# nccl_trace_rank_3, dump-3.json, rank3.pkl: the rank is the last number of the name.
_NAME = re.compile(r".*?(\d{1,9})(\.json|\.pkl|\.pickle|\.bin)?")
_MAX_FILES = 200_000


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
        for file in _files(path):
            name = _NAME.fullmatch(file.name)
            if name is None:
                if file == path:
                    raise UsageProblem(
                        f"{file} does not say of which rank it is",
                        next_step="Its name must end with the rank, as in nccl_trace_rank_3.",
                    )
                continue
            if file != path and not looks_like_a_dump(file):
                continue
            dump = DumpFile(file, int(name[1]))
            written_ns = _written_ns(file)
            if dump.rank not in newest or written_ns > newest[dump.rank][0]:
                newest[dump.rank] = (written_ns, dump)
    if not newest:
        raise NoDumps(
            f"no dump in {', '.join(map(str, paths))}",
            next_step="Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 for the job: "
            "dumps are then written as TORCH_FR_DUMP_TEMP_FILE (or TORCH_NCCL_DEBUG_INFO_TEMP_FILE)"
            " names them, with the rank at the end.",
        )
    return [newest[rank][1] for rank in sorted(newest)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise UsageProblem(f"there is no {path}", next_step="Name the folder of the dumps.")
        return [path]
    files: list[Path] = []
    for folder, _, names in os.walk(path):
        files += [Path(folder) / name for name in sorted(names)]
        if len(files) > _MAX_FILES:
            raise UsageProblem(
                f"{path} holds more than {_MAX_FILES} files",
                next_step="Name the folder in which only the dumps are.",
            )
    return files


def _written_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


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
    *,
    argv: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """The report of the hang that the dumps show.

    Args:
        files: at most one a rank.
        argv: the command line.
        progress: called with how many have been read, and how many there are.

    Raises:
        BadFlightDump: one of them is not a dump.
    """
    began, started = time.monotonic(), time.time()
    job, verdict = judged(files, progress=progress)
    duration_s = time.monotonic() - began
    return hang_report(job, verdict, argv=argv, started=started, duration_s=duration_s)


def judged(
    files: Sequence[DumpFile], *, progress: Callable[[int, int], None] | None = None
) -> tuple[JobView, HangVerdict]:
    """What the dumps show of the job, and who is at fault; see analyze."""
    dumps = []
    for number, file in enumerate(files, start=1):
        dumps.append(read_dump(file))
        if progress is not None:
            progress(number, len(files))
    source = str(Path(os.path.commonpath([file.path.parent.absolute() for file in files])))
    job = job_view(dumps, source)
    return job, without_unneeded_absence(attribute(job))


def without_unneeded_absence(verdict: HangVerdict) -> HangVerdict:
    """A rank without a dump is accused only where no other rank explains the hang.

    A launcher that hears nothing of a rank has good reason to suspect it. A file may be missing
    for many reasons, although a rank that was ending itself writes none either.
    """
    others = tuple(c for c in verdict.culprits if c.category is not Category.ABSENT)
    return replace(verdict, culprits=others) if others else verdict
