"""Input files as chunks of JSON lines: .jsonl, .json, either packed, .parquet, and archives.

A source is a file or a part of one. The parts of a file contain each of its lines or rows exactly
once and in order, so several machines can read them.
"""

from __future__ import annotations

import glob
import gzip
import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.data.archives import ENDINGS, LINES, TEXTS, documents, line_streams
from relkit.errors import BadInputFile, MissingExtra, UsageProblem
from relkit.files.input_file import open_input, require_regular

CHUNK_BYTES = 1 << 19
MAX_ROWS_PER_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or a part of one.

    Args:
        path: of the file.
        start, end: of a part: bytes (a line belongs to the part that its first byte is in) or row
            groups of a parquet file; end None: to the end.
    """

    path: Path
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some whole lines of a source.

    Args:
        data: JSON lines.
        where: of its first line, for a message: "a.jsonl, byte 1024".
        unit: what the lines are counted as: "line", "row" or "document".
        first: number of the first line within `where`, from 1.
        done_bytes: how far into the file reading has come.
    """

    data: bytes
    where: str
    unit: str
    first: int
    done_bytes: int


def find_sources(words: Sequence[str]) -> list[Source]:
    """The files that words name: paths, globs, folders, lists with commas.

    Those of a glob, and those of a folder with a known ending, are in the order of their names.

    Raises:
        BadInputFile: a word names no file.
    """
    sources: list[Source] = []
    for word in (part for listed in words for part in listed.split(",") if part):
        exact = Path(word)
        paths = [exact] if exact.is_file() else sorted(map(Path, glob.glob(word)))  # noqa: PTH207
        if exact.is_dir():
            paths = sorted(path for path in exact.iterdir() if path.name.endswith(ENDINGS))
        files = [path for path in paths if path.is_file()]
        if not files:
            raise BadInputFile(f"--input {word}: no such file")
        sources += [Source(path) for path in files]
    if not sources:
        raise UsageProblem("--input names no file")
    return sources


def split_source(source: Source, part_bytes: int) -> list[Source]:
    """Parts of a file of about `part_bytes` each; a packed file or an archive is one part."""
    path = source.path
    size = _size(path)
    if path.name.endswith((".gz", *LINES, *TEXTS)) or not size:
        return [source]
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            groups = int(file.num_row_groups)
        if not groups:
            return [source]
        step = max(1, groups * part_bytes // size)
        return [Source(path, at, min(at + step, groups)) for at in range(0, groups, step)]
    starts = range(0, size, max(1, part_bytes))
    return [Source(path, at, min(at + starts.step, size)) for at in starts]


def total_bytes(sources: Sequence[Source]) -> int:
    """Size of all files on the disk together, bytes."""
    return sum(_size(source.path) for source in sources)


def read_chunks(source: Source, keys: Sequence[str]) -> Iterator[Chunk]:
    """The source's lines, some hundred kilobytes at a time.

    Args:
        source: a file or a part of one.
        keys: the columns that are wanted of a parquet file.

    Raises:
        BadInputFile: the file cannot be read, is damaged, or has no such column.
    """
    path = source.path
    try:
        if path.suffix == ".parquet":
            yield from _rows(source, keys)
        elif path.name.endswith(TEXTS):
            with open_input(path) as packed:
                yield from _documents(path, documents(str(path), packed), packed.tell)
        elif path.name.endswith(LINES):
            with open_input(path) as packed:
                for where, stream in line_streams(str(path), packed):
                    yield from _lines(source, stream, packed.tell, where)
        elif path.suffix == ".gz":
            with open_input(path) as packed, gzip.open(packed) as unpacked:
                yield from _lines(source, unpacked, packed.tell)
        else:
            with open_input(path) as stream:
                yield from _lines(source, stream, stream.tell)
    except (EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        raise BadInputFile(f"{path} is truncated or damaged: {error}") from error
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror or error}") from error


def _documents(path: Path, lines: Iterable[bytes], position: Callable[[], int]) -> Iterator[Chunk]:
    gathered: list[bytes] = []
    size, first = 0, 1
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield Chunk(b"".join(gathered), str(path), "document", first, position())
            first += len(gathered)
            gathered, size = [], 0
    if gathered:
        yield Chunk(b"".join(gathered), str(path), "document", first, position())


def _lines(
    source: Source,
    stream: Any,  # noqa: ANN401
    position: Callable[[], int],
    where: str = "",
) -> Iterator[Chunk]:
    at, first, where = source.start, 1, where or str(source.path)
    if at:
        stream.seek(at - 1)
        at += len(stream.readline()) - 1
        where = f"{where}, from byte {at}"
    while source.end is None or at < source.end:
        wanted = CHUNK_BYTES if source.end is None else min(CHUNK_BYTES, source.end - at)
        data = stream.read(wanted)
        if not data:
            return
        if not data.endswith(b"\n"):
            data += stream.readline()
        text = data.removeprefix(b"\xef\xbb\xbf") if at == 0 else data
        yield Chunk(text, where, "line", first, position())
        at += len(data)
        first += data.count(b"\n")


def _rows(source: Source, keys: Sequence[str]) -> Iterator[Chunk]:
    path = source.path
    size = _size(path)
    with _parquet(path) as file:
        groups = range(source.start, source.end or file.num_row_groups)
        missing = [key for key in keys if key not in file.schema_arrow.names]
        if missing:
            raise BadInputFile(
                f"{path} has no column {missing[0]!r}; it has {', '.join(file.schema_arrow.names)}",
                next_step="Name the column with --json-keys.",
            )
        where = f"{path}, from row group {source.start}" if source.start else str(path)
        first, total = 1, max(1, file.metadata.num_rows)
        batches = file.iter_batches(
            _rows_per_chunk(file.metadata), row_groups=list(groups), columns=list(keys)
        )
        while (rows := _next_rows(path, batches)) is not None:
            try:
                data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
            except TypeError as error:
                raise BadInputFile(f"{path} has a column that is not text: {error}") from error
            yield Chunk(data, where, "row", first, min(size, size * (first + len(rows)) // total))
            first += len(rows)


def _rows_per_chunk(metadata: Any) -> int:  # noqa: ANN401
    unpacked = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    each = max(1, unpacked // max(1, metadata.num_rows))
    return int(min(MAX_ROWS_PER_CHUNK, max(1, CHUNK_BYTES // each)))


def _next_rows(path: Path, batches: Iterator[Any]) -> list[dict[str, Any]] | None:
    from pyarrow import ArrowException

    try:
        batch = next(batches, None)
        return None if batch is None else list(batch.to_pylist())
    except ArrowException as error:
        raise BadInputFile(f"{path} is damaged: {error}") from error


def _parquet(path: Path) -> Any:  # noqa: ANN401
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingExtra(
            "parquet files need the pyarrow package", next_step="pip install pyarrow"
        ) from error
    try:
        return parquet.ParquetFile(path)
    except ArrowException as error:
        raise BadInputFile(f"{path} is not a parquet file: {error}") from error


def _size(path: Path) -> int:
    try:
        return require_regular(path)
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
