"""A table in a file, CSV or parquet, as a head and rows; row by row, whatever its size."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from relkit.errors import BadInputFile, MissingExtra
from relkit.files.input_file import open_input, require_regular

_DELIMITERS = ",;\t|"
_GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
_ROWS_AT_ONCE = 1 << 16
_MAX_COLUMNS = 100_000
Row = Sequence[object]


class TableFile:
    """A file with a head and rows; iterate over it once.

    Args:
        path: of the file.

    Raises:
        BadInputFile: it cannot be read, or is no table.
        MissingExtra: it is parquet, and pyarrow is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Why it is not whole; "" if it is.
        self.cut = ""
        rows = _parquet_rows(path) if _head(path).startswith(PARQUET) else self._csv_rows()
        try:
            self.head = tuple(str(name) for name in next(rows))
        except StopIteration:
            raise BadInputFile(f"{path}: it is empty") from None
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def _csv_rows(self) -> Iterator[Row]:
        try:
            with open_input(self.path) as stream, _text(cast("IO[bytes]", stream)) as text:
                lines = self._lines(text)
                first = next(lines, "")
                delimiter = max(_DELIMITERS, key=first.count)
                reader = csv.reader(_again(first, lines), delimiter=delimiter)
                for row in reader:
                    if len(row) > _MAX_COLUMNS:
                        raise BadInputFile(f"{self.path}: more than {_MAX_COLUMNS} columns")
                    yield [_plain_number(cell) for cell in row] if delimiter == ";" else row
        except OSError as error:
            raise BadInputFile(f"{self.path}: {error.strerror or error}") from error
        except csv.Error as error:
            raise BadInputFile(f"{self.path}: it is no table: {error}") from error

    def _lines(self, text: IO[str]) -> Iterator[str]:
        """Without comments and empty lines, as far as the file goes."""
        try:
            for line in text:
                if line.strip() and not line.startswith("#"):
                    yield line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.cut = "it is cut at its end, or damaged, in its packed form"


def _head(path: Path) -> bytes:
    try:
        with open_input(path) as stream:
            return stream.read(len(PARQUET))
    except OSError as error:
        raise BadInputFile(f"{path}: {error.strerror or error}") from error


def _text(stream: IO[bytes]) -> IO[str]:
    is_packed = stream.read(2) == _GZIP
    stream.seek(0)
    plain = gzip.GzipFile(fileobj=stream) if is_packed else stream
    return io.TextIOWrapper(cast("IO[bytes]", plain), "utf-8-sig", "replace", newline="")


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _plain_number(cell: str) -> str:
    """Where a semicolon parts the columns, a comma is in numbers."""
    return cell.replace(",", ".") if cell.count(",") == 1 and "." not in cell else cell


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingExtra(
            f"{path} is parquet, which the pyarrow package reads",
            next_step="pip install pyarrow, or write the table as CSV.",
        ) from error
    try:
        require_regular(path)
        file: Any = parquet.ParquetFile(path)
        yield list(file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            columns = [column.to_pylist() for column in batch.columns]
            yield from zip(*columns, strict=True)
    except OSError as error:
        raise BadInputFile(f"{path}: {error.strerror or error}") from error
    except (ArrowException, ValueError) as error:
        raise BadInputFile(f"{path} is damaged, or no parquet: {error}") from error
