"""Files and folders that somebody named -> what each of them says."""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from relkit.errors import BadDump
from relkit.files.files_below import files_below
from relkit.files.input_file import open_input
from relkit.flight_recorder.file_names import earlier_attempts
from relkit.flight_recorder.stacks_and_logs import is_put_aside, is_stack_file
from relkit.stacks.dumpfile import SUFFIX, decode, read_dump
from relkit.text.foreign_json import parse_object
from relkit.why.crash_lists import read_crashes
from relkit.why.error_file import read_error_file
from relkit.why.file_names import numbered, speaker_of_name
from relkit.why.job_marks import job_of_name, marks_of
from relkit.why.kinds import FileKind, Sorted, sort_file
from relkit.why.log_reader import LogReader
from relkit.why.model import FileFacts, JobMarks, LogFacts, SourceFile, Speaker
from relkit.why.packed.archives import BAD_ARCHIVE, members_of, read_members
from relkit.why.packed.text_source import Pieces
from relkit.why.packed.unpacking import NO_ZSTD, packing_of
from relkit.why.ras_text import word_of_json, word_of_text
from relkit.why.rules.world_size import world_size_of
from relkit.why.scheduler_text import (
    jobs_of_accounting,
    read_accounting,
    read_events,
    read_job,
    read_pod,
)
from relkit.why.speakers import prefixes_of, without_prefixes

STDIN = Path("-")
MAX_FILES = 20_000
HEAD_BYTES = 1 << 16
_MAX_SMALL_BYTES = 64 << 20
_MAX_SIGHTINGS = 200_000
# Of logs that are no plain files the end is held for the analysis of hangs, and so are dumps.
_MAX_END_BYTES = 8 << 20
_MAX_HELD_BYTES = 128 << 20
_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
# Of the beginning and the end of a log, to see which ranks there are.
_SAMPLE_LINES = 256


@dataclass(slots=True)
class Collected:
    """What was read.

    Args:
        facts: of each file, in its order.
        held: contents for the analysis of hangs that no plain file has, by path.
    """

    facts: list[FileFacts] = field(default_factory=list)
    held: dict[Path, bytes] = field(default_factory=dict)
    sightings: int = 0
    held_bytes: int = 0

    def hold(self, file: Path, content: bytes) -> bool:
        """Keep a content, if there is room for it."""
        if self.held_bytes + len(content) > _MAX_HELD_BYTES:
            return False
        self.held[file] = content
        self.held_bytes += len(content)
        return True


@dataclass(frozen=True, slots=True)
class _Input:
    """A file to be read.

    Args:
        path: of it, below that of its archive where it is in one.
        is_plain: it can be opened under its path.
        is_old: of an earlier attempt of its job.
        speaker: what its name shows of who wrote it.
    """

    path: Path
    is_plain: bool
    is_old: bool
    speaker: Speaker


def collect(
    paths: Sequence[Path],
    *,
    stdin: BinaryIO | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Collected:
    """Read everything once.

    Args:
        paths: files and folders; `-` is standard input.
        stdin: of this process where left out.
        progress: called with how many files have been read, and how many there are.

    Raises:
        UsageProblem: a path does not exist, or a folder holds too many files.
    """
    named = list(dict.fromkeys(file for path in paths for file in _named(path)))
    collected = Collected()
    archives = {file: members for file in named if (members := _members(collected, file))}
    refused = {each.path for each in collected.facts}
    files = [inside for file in named for inside in archives.get(file, [file])]
    old = _earlier(files)
    aside = _of_earlier_incidents(files, paths)
    numbers = numbered(files)

    def made(file: Path, *, is_plain: bool) -> _Input:
        speaker = speaker_of_name(file)
        if speaker == Speaker() and file in numbers:
            speaker = replace(speaker, task=numbers[file])
        return _Input(file, is_plain, file in old, speaker)

    for count, file in enumerate(named, start=1):
        if file in aside:
            _leave_out(collected, file, "of an earlier incident")
        elif file in archives:
            note = read_members(
                file,
                lambda path, stream: _safely(collected, made(path, is_plain=False), stream),
            )
            if note:
                _leave_out(collected, file, note)
        elif file not in refused:
            _safely(collected, made(file, is_plain=file != STDIN), None, stdin)
        if progress is not None:
            progress(count, len(named))
    return collected


def _members(collected: Collected, file: Path) -> list[Path]:
    if file == STDIN:
        return []
    try:
        return members_of(file) or []
    except BAD_ARCHIVE as error:
        if not isinstance(error, OSError):
            _leave_out(collected, file, f"a damaged archive: {str(error)[:200]}")
        return []


def _earlier(files: Sequence[Path]) -> frozenset[Path]:
    """Those of earlier attempts, by the job that their names tell."""
    by_job: dict[str, list[Path]] = {}
    for file in files:
        by_job.setdefault(job_of_name(file), []).append(file)
    return frozenset(old for part in by_job.values() for old in earlier_attempts(part))


def _leave_out(collected: Collected, file: Path, note: str) -> None:
    collected.facts.append(FileFacts(SourceFile(file, "", note), JobMarks(job_of_name(file))))


def _safely(
    collected: Collected,
    given: _Input,
    stream: BinaryIO | None = None,
    stdin: BinaryIO | None = None,
) -> None:
    """Read a file; one that cannot be read is said, and stops nothing."""
    try:
        if stream is not None:
            _read(collected, given, stream)
            return
        with _opened(given.path, stdin) as opened:
            _read(collected, given, opened)
    except (OSError, MemoryError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "it cannot be read"
        _leave_out(collected, given.path, str(why))


def _of_earlier_incidents(files: Sequence[Path], named: Sequence[Path]) -> frozenset[Path]:
    """What `relkit launch` has put aside in its timeline folder for a later incident."""
    known = frozenset(files)
    return frozenset(
        file for file in files if is_put_aside(file, named) and file.parent / "report.json" in known
    )


def _named(path: Path) -> list[Path]:
    return [path] if path == STDIN else files_below(path, MAX_FILES)


def _read(collected: Collected, given: _Input, stream: BinaryIO) -> None:
    file = given.path
    head = stream.read(HEAD_BYTES)
    while len(head) < HEAD_BYTES and (more := stream.read(HEAD_BYTES - len(head))):
        head += more
    packing = packing_of(head)
    is_held = not given.is_plain or packing is not None
    pieces = Pieces(stream, head, _MAX_END_BYTES if is_held else 0)
    text = pieces.begin[:HEAD_BYTES]
    if packing is not None and packing.make is None:
        kind = Sorted(FileKind.NONE, NO_ZSTD)
    elif packing is None and head and _is_stacks(given, text):
        kind = Sorted(FileKind.STACKS)
    else:
        kind = sort_file(head if packing is None else pieces.begin, text)
        if packing is not None and not pieces.begin and pieces.note:
            kind = Sorted(FileKind.NONE, pieces.note)
    is_piped = file == STDIN and kind.kind is FileKind.STACKS
    if kind.kind in (FileKind.LOG, FileKind.KERNEL_LOG) or is_piped:
        tail = b"" if is_held else _tail(stream, len(head))
        lines = (text + b"\n" + tail).decode("utf-8", "replace").splitlines()
        prefixes = prefixes_of(lines)
        facts = LogReader(file, given.speaker, prefixes).read(pieces)
        facts.note = facts.note or pieces.note
        lines += pieces.end[-HEAD_BYTES:].decode("utf-8", "replace").splitlines()
        made = _of_log(collected, given, kind, facts, marks_of(file, lines))
        some = (*lines[:_SAMPLE_LINES], *lines[-_SAMPLE_LINES:])
        made.world_size = world_size_of(some)
        made.present |= {without_prefixes(line, prefixes, given.speaker)[0] for line in some}
        made.read_as = _without_suffix(file) if is_held else file
        if made.for_hang and is_held and not collected.hold(made.read_as, pieces.end):
            made.for_hang = False
        collected.facts.append(made)
        return
    _take_small(collected, given, kind, pieces, is_held=is_held)


def _is_stacks(given: _Input, text: bytes) -> bool:
    """Whether a file is of relkit's own format of stacks, which shows in nothing but its name."""
    if given.path == STDIN or given.is_plain:
        return given.path != STDIN and is_stack_file(given.path)
    return given.path.name.endswith(SUFFIX) and not (b"Process " in text and b"Thread " in text)


def _opened(file: Path, stdin: BinaryIO | None) -> BinaryIO:
    if file != STDIN:
        return open_input(file)
    given = sys.stdin.buffer if stdin is None else stdin
    return io.BufferedReader(_NotClosed(given))


class _NotClosed(io.RawIOBase):
    """Standard input, which stays open when it has been read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _tail(stream: BinaryIO, head_bytes: int) -> bytes:
    """The end of a file, which is left where it was."""
    size = os.fstat(stream.fileno()).st_size
    if size <= head_bytes:
        return b""
    stream.seek(max(head_bytes, size - HEAD_BYTES))
    tail = stream.read(HEAD_BYTES)
    stream.seek(head_bytes)
    return tail


def _of_log(
    collected: Collected, given: _Input, kind: Sorted, facts: LogFacts, marks: JobMarks
) -> FileFacts:
    note = f"of an earlier attempt of the job; {facts.note}" if given.is_old else facts.note
    used = FileKind.LOG if kind.kind is FileKind.STACKS else kind.kind
    made = FileFacts(SourceFile(given.path, used.value, note.rstrip("; ")), marks)
    made.present = {given.speaker}
    made.speakers, made.processes = facts.speakers, facts.processes
    room = _MAX_SIGHTINGS - collected.sightings
    collected.sightings += len(facts.sightings[:room])
    for place, sighting in enumerate(facts.sightings[:room]):
        # What a job has gone on after did not end it; a loss that stays NaN did.
        is_outlived = given.is_old or place in facts.outlived
        (made.outlived if is_outlived else made.sightings).append(sighting)
    if not given.is_old:
        made.ended = facts.ended
        made.for_hang = (facts.has_watchdog or kind.has_stacks) and given.path != STDIN
    return made


def _take_small(
    collected: Collected, given: _Input, kind: Sorted, pieces: Pieces, *, is_held: bool
) -> None:
    """A file that is read as a whole, or by the analysis of hangs."""
    file, note = given.path, kind.why
    made = FileFacts(SourceFile(file, "", note), JobMarks(job_of_name(file)))
    # A log in which a rank says nothing, or an empty one, shows that there was such a rank.
    made.present = {given.speaker}
    made.read_as = _without_suffix(file) if is_held else file
    if kind.kind in (FileKind.DUMP, FileKind.STACKS):
        if file == STDIN:
            kind, note = Sorted(FileKind.NONE), "name the file: of standard input logs are read"
        elif given.is_old:
            note = "of an earlier attempt of the job"
        elif is_held and not collected.hold(made.read_as, _whole(pieces)):
            kind, note = Sorted(FileKind.NONE), "too much is packed: unpack it first"
        else:
            made.for_hang = True
            if made.read_as.name.endswith(SUFFIX):
                content = collected.held.get(made.read_as) if is_held else None
                made.marks = JobMarks(_job_of_stacks(file, content) or made.marks.name)
    elif kind.kind is not FileKind.NONE:
        _of_small(made, _whole(pieces), kind.kind, given)
        if given.is_old:
            made.outlived, made.sightings = made.sightings, []
        if kind.kind is FileKind.ERROR_FILE and not (made.sightings or made.outlived):
            kind, note = Sorted(FileKind.NONE), "no exception in it"
    if not made.source.note or note:
        made.source = SourceFile(file, kind.kind.value, note)
    collected.facts.append(made)


def _job_of_stacks(file: Path, content: bytes | None) -> str:
    """The job that a .stacktrace file says it is of.

    Args:
        content: of it, where it is packed.
    """
    try:
        dump = read_dump(file) if content is None else decode(content, name=file.name)
    except BadDump:
        return ""
    return dump.job_id


def _without_suffix(file: Path) -> Path:
    """The name of what is in a packed file."""
    return file.with_suffix("") if file.suffix.lower() in _SUFFIXES else file


def _whole(pieces: Pieces) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > _MAX_SMALL_BYTES:
            raise OSError(27, f"larger than {_MAX_SMALL_BYTES} bytes")
    return bytes(data)


def _of_small(made: FileFacts, data: bytes, kind: FileKind, given: _Input) -> None:
    file = given.path
    if kind is FileKind.ERROR_FILE:
        try:
            sighting = read_error_file(parse_object(data), file, given.speaker)
        except ValueError:
            return
        made.sightings = [] if sighting is None else [sighting]
        return
    lines = data.decode("utf-8", "replace").splitlines()
    if kind is FileKind.RAS:
        is_json = data.lstrip().startswith(b"{")
        try:
            made.word = word_of_json(data) if is_json else word_of_text(lines)
        except ValueError as error:
            made.source = SourceFile(file, "", f"no answer of NCCL's RAS: {error}"[:300])
        return
    if kind is FileKind.ACCOUNTING:
        made.sightings = list(read_accounting(lines, file))[:_MAX_SIGHTINGS]
        made.by_job = jobs_of_accounting(made.sightings)
        return
    read = {
        FileKind.POD: read_pod,
        FileKind.EVENTS: read_events,
        FileKind.JOB: read_job,
        FileKind.CRASHES: read_crashes,
    }[kind]
    made.sightings = list(islice(read(lines, file), _MAX_SIGHTINGS))
    made.by_job = jobs_of_accounting(made.sightings) if kind is FileKind.JOB else {}
