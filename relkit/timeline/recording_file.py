"""The file that `relkit timeline record` writes of one rank: whole, cut or hostile, read strictly.

A sequence of frames: kind (4 bytes), length of what follows (4 bytes), zlib. The first is a JSON
object (whose it is), then come rows as they were read, the last is a JSON object of what is known
at the end. Of a file that is cut, what is whole is used.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from relkit.errors import BadInputFile
from relkit.files.input_file import open_input
from relkit.hook import layout
from relkit.hook.model import Communicator, OpKind
from relkit.text.foreign_json import parse_object
from relkit.timeline.model import STEP, Hook, Lost, RankIdentity, RankTimeline, Rows

SUFFIX = ".rktimeline"
NAME = re.compile(r"(\d{5,10})-(\d{5,10})\.rktimeline", re.ASCII)
MAGIC = b"RKTL0001"
_HEAD = struct.Struct("<4sI")
_BEGIN, _ROWS, _STEPS, _END = b"HEAD", b"ROWS", b"STEP", b"TAIL"
# Of one frame, packed and unpacked.
_MAX_FRAME_BYTES = 64 << 20
# Rows of one rank: 64 bytes each.
MAX_ROWS = 4_000_000
_ROWS_A_FRAME = 1 << 16
_MAX_STEPS = 1_000_000
_MAX_GROUPS = 4096
_MAX_TEXT = 300
_LARGEST = 1 << 62

_NEXT = "Record that rank again with `relkit timeline record`, or leave the file out."


def file_name(rank: int, world_size: int) -> str:
    """The name of a rank's file: as those of stacks, with another ending."""
    return f"{rank:05d}-{world_size:05d}{SUFFIX}"


class RecordingWriter:
    """Writes a rank's file as the rows come.

    Args:
        stream: opened for writing.
        identity: whose it is; hooks: what rows mean; begin_ns: when the recording began.
    """

    def __init__(
        self, stream: IO[bytes], identity: RankIdentity, hooks: tuple[Hook, ...], begin_ns: int
    ) -> None:
        self._stream, self._left = stream, MAX_ROWS
        # Rows for which the file had no room.
        self.refused = 0
        stream.write(MAGIC)
        head = asdict(identity) | {"begin_ns": begin_ns}
        head["hooks"] = [[hook.name, int(hook.kind)] for hook in hooks]
        self._frame(_BEGIN, json.dumps(head).encode())

    def rows(self, rows: Rows) -> None:
        """Add operations."""
        kept = rows[: self._left]
        self.refused += len(rows) - len(kept)
        self._left -= len(kept)
        for first in range(0, len(kept), _ROWS_A_FRAME):
            self._frame(_ROWS, kept[first : first + _ROWS_A_FRAME].tobytes())

    def steps(self, steps: Rows) -> None:
        """Add steps."""
        if len(steps):
            self._frame(_STEPS, steps.tobytes())

    def end(self, end_ns: int, groups: tuple[Communicator, ...], lost: Lost) -> None:
        """Say what is known now that the recording is over."""
        tail = {"end_ns": end_ns, "lost": asdict(lost), "groups": [asdict(each) for each in groups]}
        self._frame(_END, json.dumps(tail).encode())

    def _frame(self, kind: bytes, content: bytes) -> None:
        packed = zlib.compress(content, 1)
        self._stream.write(_HEAD.pack(kind, len(packed)))
        self._stream.write(packed)


def read_identity(path: Path) -> RankIdentity:
    """Whose a file is, without its rows.

    Raises:
        BadInputFile: it cannot be read, or is none.
    """
    for kind, content in _frames(path):
        if kind == _BEGIN:
            return _identity(_object(path, content), path)
        break
    raise _bad(path, "it does not begin with whose it is")


def read_recording(path: Path) -> RankTimeline:
    """A rank's timeline, as far as its file goes.

    Raises:
        BadInputFile: it cannot be read, is none, or says what cannot be.
    """
    head: Mapping[str, Any] | None = None
    tail: Mapping[str, Any] = {}
    cut = "it has no end: its recording was cut short"
    rows: list[Rows] = []
    steps: list[Rows] = []
    for kind, content in _frames(path):
        if (head is None) != (kind == _BEGIN):
            raise _bad(path, "it does not begin with whose it is")
        if kind == _BEGIN:
            head = _object(path, content)
        elif kind == _ROWS:
            rows.append(_table(path, content, layout.OP, sum(map(len, rows)), MAX_ROWS))
        elif kind == _STEPS:
            steps.append(_table(path, content, STEP, sum(map(len, steps)), _MAX_STEPS))
        elif kind == _END:
            tail, cut = _object(path, content), ""
    if head is None:
        raise _bad(path, "it is empty")
    try:
        return RankTimeline(
            _identity(head, path),
            _hooks(head),
            _groups(tail),
            np.concatenate([np.empty(0, layout.OP), *rows]),
            np.concatenate([np.empty(0, STEP), *steps]),
            _whole(head.get("begin_ns")),
            _whole(tail.get("end_ns", 0)),
            _lost(tail),
            cut,
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _bad(path, f"what it says of itself cannot be: {error}") from error


def _frames(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """The frames of a file, up to where it is cut."""
    try:
        with open_input(path) as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise _bad(path, "it is no recording of `relkit timeline record`")
            yield from _frames_of(stream, path)
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from error


def _frames_of(stream: BinaryIO, path: Path) -> Iterator[tuple[bytes, bytes]]:
    while len(head := stream.read(_HEAD.size)) == _HEAD.size:
        kind, size = _HEAD.unpack(head)
        if kind not in (_BEGIN, _ROWS, _STEPS, _END) or size > _MAX_FRAME_BYTES:
            raise _bad(path, f"it is damaged at byte {stream.tell() - _HEAD.size}")
        packed = stream.read(size)
        if len(packed) < size:
            return
        unpacking = zlib.decompressobj()
        try:
            content = unpacking.decompress(packed, _MAX_FRAME_BYTES)
        except zlib.error as error:
            raise _bad(path, f"it is damaged before byte {stream.tell()}: {error}") from error
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise _bad(path, f"it is damaged before byte {stream.tell()}")
        yield kind, content


def _table(path: Path, content: bytes, kind: np.dtype[Any], before: int, most: int) -> Rows:
    if len(content) % kind.itemsize or before + len(content) // kind.itemsize > most:
        raise _bad(path, "a table in it has no whole number of rows, or too many")
    return np.frombuffer(content, kind)


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return parse_object(content)
    except ValueError as error:
        raise _bad(path, f"what it says of itself is no JSON object: {error}") from error


def _identity(head: Mapping[str, Any], path: Path) -> RankIdentity:
    try:
        identity = RankIdentity(
            _whole(head["rank"]),
            _whole(head["world_size"]),
            _text(head["host"]),
            _whole(head["pid"]),
            _text(head["clock"]),
            _whole(head["unix_offset_ns"]),
        )
    except (TypeError, ValueError, KeyError) as error:
        raise _bad(path, f"what it says of itself cannot be: {error}") from error
    if not (0 <= identity.rank < 1 << 24 and identity.world_size >= 0):
        raise _bad(path, f"rank {identity.rank} of {identity.world_size} cannot be")
    return identity


def _hooks(head: Mapping[str, Any]) -> tuple[Hook, ...]:
    listed = list(head["hooks"])
    if len(listed) > 1 << 16:
        raise ValueError("too many operations have names")
    return tuple(Hook(_text(name), OpKind(kind)) for name, kind in listed)


def _groups(tail: Mapping[str, Any]) -> tuple[Communicator, ...]:
    listed = list(tail.get("groups", ()))
    if len(listed) > _MAX_GROUPS:
        raise ValueError(f"more than {_MAX_GROUPS} groups")
    groups = []
    for place, plain in enumerate(listed):
        index, rank, size = (_whole(plain[name]) for name in ("index", "rank", "size"))
        if index != place:
            raise ValueError("groups are out of order")
        groups.append(Communicator(index, rank, size, _text(plain["name"]), _whole(plain["seq"])))
    return tuple(groups)


def _lost(tail: Mapping[str, Any]) -> Lost:
    plain = tail.get("lost", {})
    names = ("events", "work", "unrecorded", "small")
    return Lost(*(max(0, _whole(plain.get(name, 0))) for name in names))


def _whole(value: object) -> int:
    if type(value) is not int or not -_LARGEST < value < _LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is no number of a recorder")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError("a name is no text, or too long")
    return value


def _bad(path: Path, why: str) -> BadInputFile:
    return BadInputFile(f"{path}: {why}", next_step=_NEXT)
