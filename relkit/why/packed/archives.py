"""Archives (tar, packed or not, and zip) -> their members as streams; nothing is written."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from relkit.files.input_file import open_input
from relkit.flight_recorder.plain_data import memory_bounded
from relkit.why.packed.unpacking import MAX_UNPACKED_BYTES, PIECE_BYTES, Unpacked, packing_of

MAX_MEMBERS = 20_000
# What reading a list of members may take: a header may ask for gigabytes.
_MEMORY_BYTES = 1 << 29
_HEAD_BYTES = 1 << 16
_ZIP = b"PK\x03\x04"
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257
# A checkpoint of torch and an array of numpy are zip archives too.
_NO_LOGS = ("data.pkl", ".npy", "META-INF/MANIFEST.MF", "[Content_Types].xml")
BAD_ARCHIVE = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError,
    NotImplementedError, MemoryError,
)  # fmt: skip


class _Reader(io.RawIOBase):
    """Pieces of bytes as a file that is read once, from its beginning."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._ready = memoryview(piece)
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class _Bounded(io.RawIOBase):
    """A member of a zip archive, of which no more is read than all members together may have."""

    def __init__(self, stream: IO[bytes], room: list[int]) -> None:
        self._stream, self._room = stream, room

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(min(len(buffer), self._room[0]))
        self._room[0] -= len(data)
        buffer[: len(data)] = data
        return len(data)


Take = Callable[[Path, BinaryIO], None]


def members_of(file: Path) -> list[Path] | None:
    """The members of an archive, each as a path below it; None for a file that is none.

    Raises:
        BAD_ARCHIVE: it cannot be read.
    """
    with open_input(file) as stream:
        head = stream.read(_HEAD_BYTES)
        is_zip, is_tar = head.startswith(_ZIP), _is_tar(stream, head)
    if is_zip:
        with open_input(file) as stream, zipfile.ZipFile(stream) as archive:
            names = archive.namelist()[:MAX_MEMBERS]
            if any(name.endswith(_NO_LOGS) for name in names):
                return None
            return [_below(file, info.filename) for info in _files_of_zip(archive)]
    if not is_tar:
        return None
    with _opened_tar(file) as tar:
        return [_below(file, info.name) for info in _files_of_tar(tar)]


def read_members(file: Path, take: Take) -> str:
    """Give all members of an archive, one after the other.

    Args:
        file: of which `members_of` knows members; take: called with each and its stream.

    Returns:
        What of it could not be read, "" where all was.
    """
    try:
        with open_input(file) as stream:
            is_zip = stream.read(len(_ZIP)) == _ZIP
        if is_zip:
            return _read_zip(file, take)
        with _opened_tar(file) as tar:
            for info in _files_of_tar(tar):
                member = tar.extractfile(info)
                if member is not None:
                    take(_below(file, info.name), io.BufferedReader(member))  # type: ignore[type-var]
    except BAD_ARCHIVE as error:
        return f"the archive cannot be read to its end: {str(error)[:200] or 'it is damaged'}"
    return ""


def _read_zip(file: Path, take: Take) -> str:
    room = [MAX_UNPACKED_BYTES]
    with open_input(file) as stream, zipfile.ZipFile(stream) as archive:
        for info in _files_of_zip(archive):
            with archive.open(info) as member:
                take(_below(file, info.filename), io.BufferedReader(_Bounded(member, room)))
            if room[0] <= 0:
                return f"only its first {MAX_UNPACKED_BYTES >> 30} GiB were unpacked"
    return ""


def _files_of_zip(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    return [info for info in archive.infolist()[:MAX_MEMBERS] if not info.is_dir()]


def _files_of_tar(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for count, info in enumerate(tar):
        if count >= MAX_MEMBERS:
            return
        # A sparse one may be of any size, and holds zeros.
        if info.isreg() and not info.issparse():
            yield info
        # Of those that are behind it nothing is needed any more.
        tar.members.clear()  # type: ignore[attr-defined]


def _is_tar(stream: BinaryIO, head: bytes) -> bool:
    packing = packing_of(head)
    if packing is not None:
        rest = iter(lambda: stream.read(_HEAD_BYTES), b"")
        pieces = Unpacked(packing, (piece for part in ((head,), rest) for piece in part))
        head = pieces.first()
    return head[_TAR_MARK_AT : _TAR_MARK_AT + len(_TAR_MARK)] == _TAR_MARK


@contextmanager
def _opened_tar(file: Path) -> Iterator[tarfile.TarFile]:
    with open_input(file) as stream, memory_bounded(_MEMORY_BYTES):
        packing = packing_of(head := stream.read(_HEAD_BYTES))
        rest = iter(lambda: stream.read(PIECE_BYTES), b"")
        packed = (piece for part in ((head,), rest) for piece in part)
        pieces = packed if packing is None else Unpacked(packing, packed)
        reader = io.BufferedReader(_Reader(pieces))
        with tarfile.open(fileobj=reader, mode="r|") as tar:
            yield tar


def _below(file: Path, name: str) -> Path:
    """A member's path: below that of the archive, and nowhere else."""
    parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
    return file.joinpath(*(part.replace("\0", "") for part in parts))
