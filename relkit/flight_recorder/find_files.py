"""Which files of those that somebody named are dumps, and what becomes of all others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.files.files_below import files_below
from relkit.flight_recorder.file_kinds import FileKind, kind_of
from relkit.flight_recorder.stacks_and_logs import (
    StacksAndLogs,
    is_json,
    is_text_name,
    read_stacks_and_logs,
    written_ns,
)

# nccl_trace_rank_3, dump-3.json, rank3.pkl: the rank is the last number of the name.
_NAME = re.compile(r"(.*?)(\d{1,9})(\.json|\.pkl|\.pickle|\.bin)?")
# What dumps are called.
_DUMP = re.compile(r"trace_rank|dump|flight|fr_trace", re.IGNORECASE)
_MAX_NAMED = 8


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
                if file == path and kind_of(file) is FileKind.DUMP and not is_text_name(file):
                    raise UsageProblem(
                        f"{file} does not say of which rank it is",
                        next_step="Its name must end with the rank, as in nccl_trace_rank_3.",
                    )
                continue
            if (file != path or is_text_name(file)) and kind_of(file) is not FileKind.DUMP:
                continue
            dump = DumpFile(file, int(name[2]))
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
        dumps = find_dumps(paths)
    except NoDumps as error:
        dumps = _of_no_use({}, beside, paths)
        if not dumps and not beside:
            _say_unused(dumps, beside, paths)
            if not beside.left_out:
                raise
            named = "; ".join(beside.left_out[:_MAX_NAMED])
            raise NoDumps(f"{error}; {named}", next_step=error.next_step) from error
    else:
        dumps += _of_no_use({dump.rank: dump for dump in dumps}, beside, paths)
    _say_unused(dumps, beside, paths)
    return dumps, beside


def _of_no_use(
    good: Mapping[int, DumpFile], beside: StacksAndLogs, paths: Sequence[Path]
) -> list[DumpFile]:
    """Files of ranks without a dump that are called as the dumps are, and are empty or none."""
    stems = {_stem(dump.path) for dump in good.values()}
    damaged: dict[int, DumpFile] = {}
    for file in (file for path in paths for file in files_below(path)):
        name = _NAME.fullmatch(file.name)
        if name is None or int(name[2]) in good or file in beside.used:
            continue
        kind = kind_of(file)
        is_alike = kind is not FileKind.SPY_JSON and _stem(file) in stems
        if is_alike or (kind is FileKind.EMPTY and _DUMP.search(name[1])):
            damaged[int(name[2])] = DumpFile(file, int(name[2]))
    return [damaged[rank] for rank in sorted(damaged)]


def _stem(file: Path) -> str:
    name = _NAME.fullmatch(file.name)
    return "" if name is None else f"{name[1]}*{name[3] or ''}"


def _say_unused(dumps: Sequence[DumpFile], beside: StacksAndLogs, paths: Sequence[Path]) -> None:
    """Note the files in which there is nothing that is read, so that none is passed over silently.

    Of a folder those that are called like evidence: it may be one with all sorts of files.
    """
    known = {str(dump.path) for dump in dumps} | {str(path) for path in beside.used}
    known |= {text.partition(": ")[0] for text in beside.left_out}
    for file in dict.fromkeys(file for path in paths for file in files_below(path)):
        # A folder that was left out stands for all that is in it.
        if any(str(each) in known for each in (file, *file.parents)):
            continue
        if file in paths or is_text_name(file) or is_json(file):
            beside.pass_over(file, _WHY_NOT[kind_of(file)])


_WHY_NOT = {
    FileKind.EMPTY: "it is empty",
    FileKind.DUMP: "its name does not end with a rank, or another file of that rank is newer",
    FileKind.SPY_JSON: "JSON, but not py-spy's",
    FileKind.COMPRESSED: "it is compressed: unpack it first",
    FileKind.TEXT: "neither stacks nor a traceback nor a watchdog's line is in it",
    FileKind.UNREADABLE: "it cannot be read",
}
