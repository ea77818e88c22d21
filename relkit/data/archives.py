"""Archives of texts as GPT-NeoX's lm_dataformat writes and reads them, each known by its ending.

`.jsonl.zst` and tar files of it hold JSON lines; in the others a member, a record or the file
itself is a document, which becomes a line of JSON with the key "text" here.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from relkit.errors import BadInputFile, MissingExtra

LINES = (".zst", ".zst.tar")
TEXTS = (".dat.zst", ".json.zst", ".txt", ".zip", ".tar.gz")
ENDINGS = (".jsonl", ".json", ".parquet", ".gz", *LINES, *TEXTS)
"""What is taken of a folder."""

_READ_BYTES = 1 << 16
_LENGTH_DIGITS = 16


class Unpacked(io.RawIOBase):
    """What a zstd file holds, of however many frames; one that is cut is an EOFError.

    Args:
        packed: the file, at its beginning.
    """

    def __init__(self, packed: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtra(
                ".zst files need the zstandard package", next_step="pip install zstandard"
            ) from error
        self._packed = packed
        self._start = zstandard.ZstdDecompressor().decompressobj
        self._error = zstandard.ZstdError
        self._frame: Any = None
        self._rest = self._ready = b""

    def readable(self) -> bool:
        """See `io`."""
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401
        """See `io`."""
        while not self._ready:
            packed = self._rest or self._packed.read(_READ_BYTES)
            if not packed:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                return 0
            self._frame = self._frame or self._start()
            try:
                self._ready = self._frame.decompress(packed)
            except self._error as error:
                raise EOFError(str(error)) from error
            self._rest = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        part = self._ready[: len(into)]
        into[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)


def line_streams(name: str, packed: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    """Streams of JSON lines in a file whose name has an ending of LINES, each with its own name."""
    if name.endswith(".zst"):
        yield name, io.BufferedReader(Unpacked(packed))
        return
    packed.seek(-tarfile.BLOCKSIZE, io.SEEK_END)
    if any(packed.read()):
        raise EOFError("it has no end")
    packed.seek(0)
    for member, content in _members(packed):
        yield f"{name}, {member}", io.BufferedReader(Unpacked(content))


def documents(name: str, packed: BinaryIO) -> Iterator[bytes]:
    """The documents of a file whose name has an ending of TEXTS, as JSON lines."""
    for text in _texts(name, packed):
        yield json.dumps({"text": text}).encode() + b"\n"


def _texts(name: str, packed: BinaryIO) -> Iterator[str]:
    if name.endswith(".dat.zst"):
        yield from _records(name, io.BufferedReader(Unpacked(packed)))
    elif name.endswith(".json.zst"):
        yield from _listed(name, io.BufferedReader(Unpacked(packed)))
    elif name.endswith(".zip"):
        with zipfile.ZipFile(packed) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    yield _text(f"{name}, {member.filename}", archive.read(member))
    elif name.endswith(".tar.gz"):
        with gzip.open(packed) as unpacked:
            for member_name, content in _members(unpacked):
                yield _text(f"{name}, {member_name}", content.read())
            while unpacked.read(_READ_BYTES):
                pass  # its checksum stands behind the padding, which tar does not read
    else:
        yield _text(name, packed.read())


def _records(name: str, stream: BinaryIO) -> Iterator[str]:
    """Each is its length in bytes, as sixteen digits, and then itself."""
    while digits := stream.read(_LENGTH_DIGITS):
        if not digits.isdigit() or len(digits) < _LENGTH_DIGITS:
            raise BadInputFile(f"{name} is no lm_dataformat archive: a length is {digits!r}")
        size = int(digits)
        content = stream.read(size)
        if len(content) < size:
            raise EOFError(f"a record of {size} bytes has {len(content)}")
        yield _text(name, content)


def _listed(name: str, stream: BinaryIO) -> Iterator[str]:
    try:
        listed = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise BadInputFile(f"{name} is not JSON: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise BadInputFile(
            f"{name} is not one list of texts",
            next_step="JSON lines that are packed by zstd are to be called .jsonl.zst.",
        )
    yield from listed


def _members(packed: Any) -> Iterator[tuple[str, BinaryIO]]:  # noqa: ANN401
    with tarfile.open(fileobj=packed, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content  # type: ignore[misc]


def _text(where: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInputFile(f"{where} is not UTF-8: {error}") from error
