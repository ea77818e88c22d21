"""What lies beside dumps: stacks of ranks, and logs in which NCCL's watchdog speaks."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.errors import BadDump, UsageProblem
from relkit.files.input_file import open_input
from relkit.flight_recorder.plain_data import looks_like_a_dump
from relkit.flight_recorder.spy_text import parse_spy_text
from relkit.flight_recorder.watchdog_log import WatchdogState, parse_watchdog
from relkit.stacks.dumpfile import SUFFIX, read_dump
from relkit.stacks.folder import PREVIOUS, Head, choose
from relkit.stacks.model import RankDump
from relkit.text.printable import printable_line

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
_LAST_NUMBER = re.compile(r"(?:^|\D)(\d{1,7})(?:\.[a-z]+)*$", re.ASCII | re.IGNORECASE)
# Numbers of something else: `node_rank0`, `local_rank3`, `gpu3`, `slurm-1234.out`, a date.
_NO_RANK = re.compile(
    r"(?<![a-z0-9])(node|local|group)[-_.]?rank[-_. =]?\d{1,7}"
    r"|(node|local|host|gpu|cuda|slurm|job|pid|attempt)[-_.=]?\d"
    r"|20\d\d[-_.]?[01]\d[-_.]?[0-3]\d",
    re.ASCII | re.IGNORECASE,
)
# A folder of torchrun's with the logs of one attempt.
_ATTEMPT = re.compile(r"attempt_(\d{1,7})", re.ASCII)
_SPOKEN = (b"ProcessGroup", b"atchdog", b"latest states", b"lagging ranks")


@dataclass(frozen=True, slots=True)
class StackFile:
    """The stacks of a rank, and the file that they are from.

    Args:
        taken_ns: when they were taken, as far as the file shows that, Unix time, ns.
    """

    dump: RankDump
    path: Path
    taken_ns: int


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
    earlier: dict[Path, None] = {}
    for file in files:
        if not file.name.endswith(SUFFIX):
            texts.append(file)
            continue
        if file.parent.name.startswith(PREVIOUS) and not {file, file.parent} & {*paths}:
            earlier[file.parent] = None
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
    for folder in earlier:
        result.leave_out(folder, "its stacks are of an earlier incident")
    _choose(result, binary, heads)
    _read_texts(result, sorted(_of_newest_attempts(result, texts), key=written_ns))
    return result


def _of_newest_attempts(result: StacksAndLogs, files: Sequence[Path]) -> list[Path]:
    """Without the logs that torchrun keeps of what was restarted."""
    attempts = {file: _attempt(file) for file in files}
    newest: dict[Path, int] = {}
    for folder, number in filter(None, attempts.values()):
        newest[folder.parent] = max(newest.get(folder.parent, 0), number)
    old = {each[0] for each in attempts.values() if each and each[1] < newest[each[0].parent]}
    for folder in sorted(old):
        result.leave_out(folder, "its logs are of an earlier attempt of the job")
    return [file for file, each in attempts.items() if each is None or each[0] not in old]


def _attempt(file: Path) -> tuple[Path, int] | None:
    """The folder of the attempt that a log is of, and its number."""
    for folder in file.parents:
        if (name := _ATTEMPT.fullmatch(folder.name)) is not None:
            return folder, int(name[1])
    return None


def _choose(result: StacksAndLogs, dumps: Mapping[str, RankDump], heads: Sequence[Head]) -> None:
    """Of relkit's own files those of one job: the one that was captured last."""
    refused = [(head.name, head.error) for head in heads if head.error]
    if dumps:
        choice = choose(heads, None, Path(os.path.commonpath(list(dumps))))
        refused = list(choice.refused)
        for name in choice.names:
            dump, path = dumps[name], Path(name)
            taken_ns = dump.captured_unix_ns or written_ns(path)
            result.stacks[dump.rank] = StackFile(dump, path, taken_ns)
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
            _add_stacks(result, file, data)
        if any(word in data for word in _SPOKEN):
            states = parse_watchdog(_lines(data), _named_rank(file))
            result.logs += [LogFile(state, file, written_ns(file)) for state in states]


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


def _add_stacks(result: StacksAndLogs, file: Path, data: bytes) -> None:
    processes = parse_spy_text(_lines(data))
    marked = [process for process in processes if process.rank is not None]
    # Processes behind the first are its children, such as those of a data loader.
    for process in marked or processes[:1]:
        rank = process.rank if marked else rank_of_name(file, process.pid)
        if rank is None:
            result.leave_out(file, "py-spy's text, but neither it nor its name says of which rank")
            continue
        taken_ns, known = written_ns(file), result.stacks.get(rank)
        if known is None or taken_ns >= known.taken_ns:
            result.stacks[rank] = StackFile(process.dump(rank), file, taken_ns)


def rank_of_name(path: Path, pid: int) -> int | None:
    """The rank that a name tells: `rank3.txt`, `pyspy_3.log`, `rank_3/stack.txt`.

    Args:
        path: of the file; pid: of the process, which is in names as often and is no rank.
    """
    named = _named_rank(path)
    if named is not None:
        return named
    last = None if _NO_RANK.search(path.name) else _LAST_NUMBER.search(path.name)
    return None if last is None or int(last[1]) == pid else int(last[1])


def _named_rank(path: Path) -> int | None:
    """The number behind the word `rank` in the name of a file, or of its folder."""
    for name in (path.name, path.parent.name):
        if named := _RANK_IN_NAME.findall(_NO_RANK.sub("", name)):
            return int(named[-1])
    return None


def written_ns(file: Path) -> int:
    """When a file was written last, Unix time, ns; 0 where that cannot be seen."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
