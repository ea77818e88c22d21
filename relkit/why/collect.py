"""Files and folders that somebody named -> all that they say of a job."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from relkit.files.files_below import files_below
from relkit.files.input_file import open_input, read_input
from relkit.findings import Report
from relkit.flight_recorder.file_names import earlier_attempts
from relkit.flight_recorder.stacks_and_logs import is_put_aside, is_stack_file
from relkit.text.foreign_json import parse_object
from relkit.why.error_file import read_error_file
from relkit.why.file_names import numbered, speaker_of_name
from relkit.why.hang_files import hang_of
from relkit.why.kinds import FileKind, Sorted, sort_file
from relkit.why.log_reader import LogReader
from relkit.why.model import Ended, Evidence, LogFacts, Sighting, SourceFile, Speaker
from relkit.why.scheduler_text import read_accounting, read_pod
from relkit.why.speakers import prefixes_of, without_prefixes
from relkit.why.text_source import Pieces, unpacked_head

STDIN = Path("-")
MAX_FILES = 20_000
HEAD_BYTES = 1 << 16
_MAX_SMALL_BYTES = 64 << 20
_MAX_SIGHTINGS = 200_000
# Of the beginning and the end of a log, to see which ranks there are.
_SAMPLE_LINES = 256


@dataclass(slots=True)
class _Collected:
    """What was read so far."""

    sightings: list[Sighting] = field(default_factory=list)
    outlived: list[Sighting] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    speakers: set[Speaker] = field(default_factory=set)
    present: set[Speaker] = field(default_factory=set)
    files: list[SourceFile] = field(default_factory=list)
    for_hang: list[Path] = field(default_factory=list)


def collect(
    paths: Sequence[Path],
    *,
    stdin: BinaryIO | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Evidence, Report | None]:
    """Read everything once.

    Args:
        paths: files and folders; `-` is standard input.
        stdin: of this process where left out.
        progress: called with how many files have been read, and how many there are.

    Returns:
        What was said, and the report on the hang that dumps and stacks show, if there are such.

    Raises:
        UsageProblem: a path does not exist, or a folder holds too many files.
    """
    files = list(dict.fromkeys(file for path in paths for file in _named(path)))
    old = earlier_attempts(files)
    aside = _of_earlier_incidents(files, paths)
    numbers = numbered(files)
    collected = _Collected()
    for count, file in enumerate(files, start=1):
        if file in aside:
            collected.files.append(SourceFile(file, "", "of an earlier incident"))
            continue
        speaker = speaker_of_name(file)
        if speaker == Speaker() and file in numbers:
            speaker = replace(speaker, task=numbers[file])
        try:
            _read(collected, file, speaker, stdin, is_old=file in old)
        except (OSError, MemoryError) as error:
            why = getattr(error, "strerror", None) or "it cannot be read"
            collected.files.append(SourceFile(file, "", str(why)))
        if progress is not None:
            progress(count, len(files))
    return _evidence(collected)


def _of_earlier_incidents(files: Sequence[Path], named: Sequence[Path]) -> frozenset[Path]:
    """What `relkit launch` has put aside in its timeline folder for a later incident."""
    known = frozenset(files)
    return frozenset(
        file for file in files if is_put_aside(file, named) and file.parent / "report.json" in known
    )


def _named(path: Path) -> list[Path]:
    return [path] if path == STDIN else files_below(path, MAX_FILES)


def _read(
    collected: _Collected, file: Path, speaker: Speaker, stdin: BinaryIO | None, *, is_old: bool
) -> None:
    with _opened(file, stdin) as stream:
        head = stream.read(HEAD_BYTES)
        while len(head) < HEAD_BYTES and (more := stream.read(HEAD_BYTES - len(head))):
            head += more
        text = unpacked_head(head)
        # That format shows in nothing but its name.
        is_stacks = file != STDIN and is_stack_file(file)
        # A log in which a rank says nothing, or an empty one, shows that there was such a rank.
        collected.present.add(speaker)
        kind = Sorted(FileKind.STACKS) if is_stacks and head else sort_file(head, text)
        if kind.kind in (FileKind.LOG, FileKind.KERNEL_LOG) or _is_piped(file, kind):
            tail = _tail(stream, len(head)) if file != STDIN else b""
            lines = (text + b"\n" + tail).decode("utf-8", "replace").splitlines()
            pieces = Pieces(stream, head)
            prefixes = prefixes_of(lines)
            some = (*lines[:_SAMPLE_LINES], *lines[-_SAMPLE_LINES:])
            collected.present |= {without_prefixes(line, prefixes, speaker)[0] for line in some}
            facts = LogReader(file, speaker, prefixes).read(pieces)
            facts.note = facts.note or pieces.note
            _take_log(collected, file, kind, facts, is_old=is_old)
            return
    _take_small(collected, file, kind, speaker, is_old=is_old)


def _is_piped(file: Path, kind: Sorted) -> bool:
    """Of standard input nothing but text can be read a second time."""
    return file == STDIN and kind.kind is FileKind.STACKS


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


def _take_log(
    collected: _Collected, file: Path, kind: Sorted, facts: LogFacts, *, is_old: bool
) -> None:
    note = f"of an earlier attempt of the job; {facts.note}" if is_old else facts.note
    used = FileKind.LOG if kind.kind is FileKind.STACKS else kind.kind
    collected.files.append(SourceFile(file, used.value, note.rstrip("; ")))
    collected.speakers |= facts.speakers
    room = _MAX_SIGHTINGS - len(collected.sightings)
    for place, sighting in enumerate(facts.sightings[:room]):
        # What a job has gone on after did not end it; a loss that stays NaN did.
        is_outlived = is_old or place in facts.outlived
        (collected.outlived if is_outlived else collected.sightings).append(sighting)
    if not is_old:
        collected.ended += facts.ended
        if (facts.has_watchdog or kind.has_stacks) and file != STDIN:
            collected.for_hang.append(file)


def _take_small(
    collected: _Collected, file: Path, kind: Sorted, speaker: Speaker, *, is_old: bool
) -> None:
    """A file that is read as a whole, or by the analysis of hangs."""
    note = kind.why
    if kind.kind in (FileKind.DUMP, FileKind.STACKS):
        if file == STDIN:
            kind, note = Sorted(FileKind.NONE), "name the file: of standard input logs are read"
        else:
            collected.for_hang.append(file)
    elif kind.kind is not FileKind.NONE:
        sightings = _of_small(file, kind.kind, speaker)
        (collected.outlived if is_old else collected.sightings).extend(sightings)
        if not sightings and kind.kind is FileKind.ERROR_FILE:
            kind, note = Sorted(FileKind.NONE), "no exception in it"
    collected.files.append(SourceFile(file, kind.kind.value, note))


def _of_small(file: Path, kind: FileKind, speaker: Speaker) -> list[Sighting]:
    data = read_input(file, _MAX_SMALL_BYTES) if file != STDIN else b""
    if kind is FileKind.ERROR_FILE:
        try:
            sighting = read_error_file(parse_object(data), file, speaker)
        except ValueError:
            return []
        return [] if sighting is None else [sighting]
    lines = unpacked_head(data).decode("utf-8", "replace").splitlines()
    read = read_accounting if kind is FileKind.ACCOUNTING else read_pod
    return list(read(lines, file))[:_MAX_SIGHTINGS]


def _evidence(collected: _Collected) -> tuple[Evidence, Report | None]:
    word, report, notes = hang_of(collected.for_hang)
    files = []
    for file in collected.files:
        note = notes.get(file.path)
        is_only_for_it = file.used_for in (FileKind.DUMP.value, FileKind.STACKS.value)
        if note and is_only_for_it:
            files.append(replace(file, used_for="", note=note))
        else:
            files.append(file)
    evidence = Evidence(
        sightings=tuple(collected.sightings),
        outlived=tuple(collected.outlived),
        ended=tuple(collected.ended),
        speakers=frozenset(collected.speakers),
        present=frozenset(collected.present),
        files=tuple(files),
        hang=word,
    )
    return evidence, report
