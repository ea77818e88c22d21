"""What lies beside dumps: stacks of ranks, and logs with NCCL's watchdog or with tracebacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.errors import BadDump
from relkit.files.files_below import files_below
from relkit.files.input_file import open_input, size_of
from relkit.flight_recorder.fault_text import SIGN as FAULT_SIGN
from relkit.flight_recorder.fault_text import parse_fault_text
from relkit.flight_recorder.file_kinds import FileKind, kind_of
from relkit.flight_recorder.file_names import earlier_attempts, named_rank, rank_of_name
from relkit.flight_recorder.gdb_text import SIGN as GDB_SIGN
from relkit.flight_recorder.gdb_text import parse_gdb_text
from relkit.flight_recorder.pystack_text import SIGN as PYSTACK_SIGN
from relkit.flight_recorder.pystack_text import parse_pystack_text
from relkit.flight_recorder.spy_json import parse_spy_json
from relkit.flight_recorder.spy_text import SpyProcess, parse_spy_text
from relkit.flight_recorder.text_lines import lines_of, marked_lines_of
from relkit.flight_recorder.traceback_log import SIGNS as TRACEBACK_SIGNS
from relkit.flight_recorder.traceback_log import EndedBy, parse_tracebacks
from relkit.flight_recorder.watchdog_log import SIGNS as WATCHDOG_SIGNS
from relkit.flight_recorder.watchdog_log import WatchdogState, parse_watchdog
from relkit.hang.words import of_ranks
from relkit.ranks import RankSet
from relkit.stacks.dumpfile import SUFFIX, read_dump
from relkit.stacks.folder import PREVIOUS, Head, choose
from relkit.stacks.model import RankDump
from relkit.text.printable import printable_line

# Of one log its end is read: there the watchdog speaks, and a training log may be huge.
MAX_TEXT_BYTES = 32 << 20
MAX_ALL_TEXTS_BYTES = 1 << 30
_MAX_LEFT_OUT = 1000

_TEXT_NAME = re.compile(
    r"\.(txt|log|out|err|stack|stacktrace|stdout|stderr)(\.\d+)?$|py-?spy|(^|[-_.])(stdout|stderr)"
    r"|(^|[-_.])rank[-_.]?\d+$"
)


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


@dataclass(frozen=True, slots=True)
class Unranked:
    """A process of a job whose rank nothing says, and the file that its stacks are from."""

    process: SpyProcess
    path: Path


@dataclass(slots=True)
class StacksAndLogs:
    """All that was read beside dumps.

    Args:
        stacks: by rank, the newest.
        logs: in the order in which they were read, older logs first.
        raised: exceptions that ended ranks, by rank, with the log of each.
        unranked: processes whose rank is not known.
        used: what each file that was used is.
        left_out: files that could not be used, each with the reason.
        passed_over: files in which nothing is that could be used, each with the reason.
    """

    stacks: dict[int, StackFile] = field(default_factory=dict)
    logs: list[LogFile] = field(default_factory=list)
    raised: dict[int, tuple[EndedBy, Path]] = field(default_factory=dict)
    unranked: list[Unranked] = field(default_factory=list)
    used: dict[Path, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stacks or self.logs or self.raised or len(self.unranked) > 1)

    def leave_out(self, what: Path | str, reason: str) -> None:
        """Note what could not be used."""
        _note(self.left_out, what, reason)

    def pass_over(self, what: Path, reason: str) -> None:
        """Note what there was no use for."""
        _note(self.passed_over, what, reason)


def _note(notes: list[str], what: Path | str, reason: str) -> None:
    if len(notes) < _MAX_LEFT_OUT:
        notes.append(printable_line(f"{what}: {reason}")[:400])


def is_json(path: Path) -> bool:
    """Whether a file's name is that of a JSON document."""
    return path.name.lower().endswith(".json")


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
    files = {file: kind_of(file) for path in paths for file in files_below(path)}
    files = {
        file: kind
        for file, kind in files.items()
        if kind not in (FileKind.DUMP, FileKind.EMPTY)
        and (is_text_name(file) or file in paths or (kind is FileKind.SPY_JSON and is_json(file)))
        and (is_text_name(file) or kind is not FileKind.UNREADABLE)
    }
    result = StacksAndLogs()
    binary: dict[str, RankDump] = {}
    heads: list[Head] = []
    texts: list[Path] = []
    earlier: dict[Path, None] = {}
    for file, kind in files.items():
        if kind is FileKind.COMPRESSED and not file.name.endswith(SUFFIX):
            result.leave_out(file, "it is compressed: unpack it first")
            continue
        if not file.name.endswith(SUFFIX):
            texts.append(file)
            continue
        if is_put_aside(file, paths):
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
    old = earlier_attempts(files)
    for folder in sorted({*old.values()}):
        result.leave_out(folder, "its logs are of an earlier attempt of the job")
    return [file for file in files if file not in old]


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
            result.used[path] = f"stacks of rank {dump.rank}"
    for name, reason in refused:
        result.leave_out(name, reason)


def is_stack_file(path: Path) -> bool:
    """Whether a file has relkit's own format of stacks, and not a text of such a name."""
    return path.name.endswith(SUFFIX) and not is_spy_text(path)


def is_put_aside(file: Path, named: Iterable[Path]) -> bool:
    """Whether a file is of an earlier incident, and neither it nor its folder was asked for."""
    return file.parent.name.startswith(PREVIOUS) and not {file, file.parent} & {*named}


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
        _read_text(result, file, data)


def _read_text(result: StacksAndLogs, file: Path, data: bytes) -> None:
    """Whatever of use a text holds: it may hold several kinds."""
    if kind_of(file) is FileKind.SPY_JSON:
        try:
            _add_stacks(result, file, parse_spy_json(data.decode("utf-8", "replace")))
        except ValueError as error:
            if is_json(file):
                result.leave_out(file, str(error))
        return
    text = _without_zeros(data)
    if b"Thread " in text and b"Process " in text:
        _add_stacks(result, file, parse_spy_text(marked_lines_of(data)))
    elif PYSTACK_SIGN in text:
        _add_stacks(result, file, parse_pystack_text(marked_lines_of(data)))
    elif GDB_SIGN.search(text) is not None:
        _add_stacks(result, file, parse_gdb_text(marked_lines_of(data)))
    elif FAULT_SIGN in text:
        _add_stacks(result, file, parse_fault_text(marked_lines_of(data)))
    rank = named_rank(file)
    if any(word in text for word in WATCHDOG_SIGNS):
        states = parse_watchdog(lines_of(data), rank)
        result.logs += [LogFile(state, file, written_ns(file)) for state in states]
        if states:
            result.used[file] = "what the watchdog says of " + of_ranks(
                RankSet.of(state.rank for state in states)
            )
    if any(sign in text for sign in TRACEBACK_SIGNS):
        raised = parse_tracebacks(lines_of(data), rank)
        result.raised |= {each.rank: (each, file) for each in raised}
        if raised:
            ranks = of_ranks(RankSet.of(each.rank for each in raised))
            known = f"{result.used[file]}, and " if file in result.used else ""
            result.used[file] = f"{known}tracebacks of {ranks}"


def _without_zeros(data: bytes) -> bytes:
    """For a search of words: every other byte of UTF-16 is a zero."""
    return data.replace(b"\0", b"") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data


def _end_of(path: Path) -> tuple[bytes, bool]:
    with open_input(path) as stream:
        size_bytes = size_of(stream)
        is_cut = size_bytes > MAX_TEXT_BYTES
        if is_cut:
            stream.seek(size_bytes - MAX_TEXT_BYTES)
        return stream.read(MAX_TEXT_BYTES), is_cut


def _add_stacks(result: StacksAndLogs, file: Path, processes: Sequence[SpyProcess]) -> None:
    """Of one process the rank is that in the name; several are several ranks, and say it each."""
    marked = [process for process in processes if process.rank is not None]
    # Children of a rank, such as those that load its data, come in the same text.
    own = [process for process in processes if not process.is_helper] or list(processes[:1])
    chosen = marked or own
    ranks = []
    for process in chosen:
        rank = process.rank if len(chosen) > 1 or marked else rank_of_name(file, process.pid)
        if rank is None:
            result.unranked.append(Unranked(process, file))
            continue
        ranks.append(rank)
        taken_ns, known = written_ns(file), result.stacks.get(rank)
        if known is None or taken_ns >= known.taken_ns:
            result.stacks[rank] = StackFile(process.dump(rank), file, taken_ns)
    helpers = len(processes) - len(chosen)
    unused = f" ({helpers} more processes in it are helpers, and not used)" if helpers else ""
    if ranks:
        result.used[file] = f"stacks of {of_ranks(RankSet.of(ranks))}{unused}"
    elif len(chosen) > 1:
        result.leave_out(
            file,
            f"stacks of {len(chosen)} processes{unused}, and it does not say of which ranks they "
            "are",
        )
    elif chosen:
        engine = "py-spy's text" if chosen[0].engine == "py-spy" else f"{chosen[0].engine} stacks"
        result.leave_out(file, f"{engine}, but neither it nor its name says of which rank")


def written_ns(file: Path) -> int:
    """When a file was written last, Unix time, ns; 0 where that cannot be seen."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
