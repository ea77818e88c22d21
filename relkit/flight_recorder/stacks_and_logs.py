"""What lies beside dumps: stacks of ranks, and logs in which NCCL's watchdog speaks."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.errors import BadDump, UsageProblem
from relkit.flight_recorder.plain_data import looks_like_a_dump
from relkit.flight_recorder.spy_text import parse_spy_text
from relkit.flight_recorder.watchdog_log import WatchdogState, parse_watchdog
from relkit.input_file import open_input
from relkit.printable import printable_line
from relkit.stacks.dumpfile import SUFFIX, read_dump
from relkit.stacks.folder import Head, choose
from relkit.stacks.model import RankDump

MAX_FILES = 200_000
# Of one log its end is read: there the watchdog speaks, and a training log may be huge.
MAX_TEXT_BYTES = 32 << 20
MAX_ALL_TEXTS_BYTES = 1 << 30
_MAX_LEFT_OUT = 1000

_TEXT_NAME = re.compile(
    r"\.(txt|log|out|err|stack|stacktrace|stdout|stderr)(\.\d+)?$|py-?spy|(^|[-_.])(stdout|stderr)"
    r"|(^|[-_.])rank[-_.]?\d+$"
)
_RANK_IN_NAME = re.compile(r"rank[-_. =]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_RANK_FOLDER = re.compile(r"rank[-_.]?(\d{1,7})", re.ASCII | re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?:^|\D)(\d{1,7})(?:\.[a-z]+)*$", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"20\d\d[-_.]?[01]\d[-_.]?[0-3]\d", re.ASCII)
_SPOKEN = (b"ProcessGroup", b"atchdog", b"latest states", b"lagging ranks")


@dataclass(frozen=True, slots=True)
class StackFile:
    """The stacks of a rank, and the file that they are from."""

    dump: RankDump
    path: Path


@dataclass(frozen=True, slots=True)
class LogFile:
    """What a log says of a rank, and the log.

    Args:
        written_ns: when it was written last, Unix time, ns.
    """

    state: WatchdogState
    path: Path
    written_ns: int


@dataclass(slots=True)
class StacksAndLogs:
    """All that was read beside dumps.

    Args:
        stacks: by rank, the newest.
        logs: in the order in which they were read, older logs first.
        left_out: files that could not be used, each with the reason.
    """

    stacks: dict[int, StackFile] = field(default_factory=dict)
    logs: list[LogFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stacks or self.logs)

    def leave_out(self, what: Path | str, reason: str) -> None:
        """Note what could not be used."""
        if len(self.left_out) < _MAX_LEFT_OUT:
            self.left_out.append(printable_line(f"{what}: {reason}")[:400])


def files_below(path: Path) -> list[Path]:
    """The file of that name, or all files in a folder and below it.

    Raises:
        UsageProblem: there is no such path, or the folder holds too many files.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageProblem(f"there is no {path}", next_step="Name the folder of the dumps.")
        return [path]
    files: list[Path] = []
    for folder, _, names in os.walk(path):
        files += [Path(folder) / name for name in sorted(names)]
        if len(files) > MAX_FILES:
            raise UsageProblem(
                f"{path} holds more than {MAX_FILES} files",
                next_step="Name the folder in which only the dumps are.",
            )
    return files


def is_text_name(path: Path) -> bool:
    """Whether a file's name is that of a log, or of stacks."""
    return _TEXT_NAME.search(path.name.lower()) is not None


def read_stacks_and_logs(paths: Sequence[Path]) -> StacksAndLogs:
    """Read the stacks and logs among files, and in folders.

    What is damaged, is nobody's, or goes beyond the limits is left out with a note: the dumps are
    judged all the same.

    Args:
        paths: files and folders; folders are searched with all that is below them.

    Raises:
        UsageProblem: a path does not exist, or a folder holds too many files.
    """
    files = {
        file: None
        for path in paths
        for file in files_below(path)
        if is_text_name(file) and not looks_like_a_dump(file)
    }
    result = StacksAndLogs()
    binary: dict[str, RankDump] = {}
    heads: list[Head] = []
    texts: list[Path] = []
    for file in files:
        if not file.name.endswith(SUFFIX):
            texts.append(file)
            continue
        try:
            dump = read_dump(file)
        except BadDump as error:
            if is_spy_text(file):
                texts.append(file)
            else:
                heads.append(Head(str(file), error=str(error).removeprefix(f"{file.name}: ")))
            continue
        binary[str(file)] = dump
        heads.append(
            Head(str(file), dump.rank, dump.world_size, dump.job_id, dump.captured_unix_ns)
        )
    _choose(result, binary, heads)
    _read_texts(result, sorted(texts, key=_written_ns))
    return result


def _choose(result: StacksAndLogs, dumps: Mapping[str, RankDump], heads: Sequence[Head]) -> None:
    """Of relkit's own files those of one job: the one that was captured last."""
    refused = [(head.name, head.error) for head in heads if head.error]
    if dumps:
        choice = choose(heads, None, Path(os.path.commonpath(list(dumps))))
        refused = list(choice.refused)
        for name in choice.names:
            result.stacks[dumps[name].rank] = StackFile(dumps[name], Path(name))
    for name, reason in refused:
        result.leave_out(name, reason)


def is_spy_text(path: Path) -> bool:
    """Whether a file begins as py-spy's text does, or a text before it."""
    try:
        with open_input(path) as stream:
            head = stream.read(1 << 16)
    except OSError:
        return False
    return b"Process " in head and b"Thread " in head


def _read_texts(result: StacksAndLogs, files: Sequence[Path]) -> None:
    room_bytes = MAX_ALL_TEXTS_BYTES
    written_ns = {rank: _written_ns(file.path) for rank, file in result.stacks.items()}
    for file in files:
        if room_bytes <= 0:
            result.leave_out(file, f"{MAX_ALL_TEXTS_BYTES >> 30} GiB of logs were read before it")
            continue
        try:
            data, is_cut = _end_of(file)
        except OSError as error:
            result.leave_out(file, error.strerror or "it cannot be read")
            continue
        room_bytes -= len(data)
        if is_cut:
            result.leave_out(file, f"only its last {MAX_TEXT_BYTES >> 20} MiB were read")
        if b"Thread " in data and b"Process " in data:
            _add_stacks(result, file, data, written_ns)
        if any(word in data for word in _SPOKEN):
            named = _RANK_IN_NAME.findall(file.name) or _RANK_FOLDER.findall(file.parent.name)
            states = parse_watchdog(_lines(data), int(named[-1]) if named else None)
            result.logs += [LogFile(state, file, _written_ns(file)) for state in states]


def _end_of(path: Path) -> tuple[bytes, bool]:
    with open_input(path) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        is_cut = size_bytes > MAX_TEXT_BYTES
        if is_cut:
            stream.seek(size_bytes - MAX_TEXT_BYTES)
        return stream.read(MAX_TEXT_BYTES), is_cut


def _lines(data: bytes) -> Iterator[str]:
    # One after the other: of a file of short lines a list would take many times its size.
    for line in io.BytesIO(data):
        yield line.decode("utf-8", "replace")


def _add_stacks(result: StacksAndLogs, file: Path, data: bytes, written_ns: dict[int, int]) -> None:
    processes = parse_spy_text(_lines(data))
    marked = [process for process in processes if process.rank is not None]
    # Processes behind the first are its children, such as those of a data loader.
    for process in marked or processes[:1]:
        rank = process.rank if marked else rank_of_name(file, process.pid)
        if rank is None:
            result.leave_out(file, "py-spy's text, but neither it nor its name says of which rank")
            continue
        if rank not in result.stacks or _written_ns(file) >= written_ns[rank]:
            result.stacks[rank] = StackFile(process.dump(rank), file)
            written_ns[rank] = _written_ns(file)


def rank_of_name(path: Path, pid: int) -> int | None:
    """The rank that a name tells: `rank3.txt`, `pyspy_3.log`, `rank_3/stack.txt`.

    Args:
        path: of the file; pid: of the process, which is in names as often and is no rank.
    """
    named = _RANK_IN_NAME.findall(path.name) or _RANK_FOLDER.findall(path.parent.name)
    if named:
        return int(named[-1])
    last = None if _DATE.search(path.name) else _LAST_NUMBER.search(path.name)
    return None if last is None or int(last[1]) == pid else int(last[1])


def _written_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
