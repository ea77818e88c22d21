"""Writing a token data set: PREFIX.bin and PREFIX.idx, both or none."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from relkit.data.index_file import CODES, Index, pair, write_index
from relkit.errors import UnwritablePath


class IndexedWriter:
    """Writes a .bin/.idx pair: it appears whole, under its name, or not at all.

    Use as a context manager: leaving it normally puts the pair in place, an exception leaves no
    trace. In memory are 4 bytes a sequence and 8 a document.

    Args:
        prefix: path of both files without .bin and .idx; the folder must exist.
        dtype: type of the tokens (see `index_file.token_dtype`).

    Raises:
        UnwritablePath: the folder is missing, read-only or full (here and in every method).
    """

    def __init__(self, prefix: str | Path, dtype: npt.DTypeLike) -> None:
        self.prefix = str(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype not in CODES:
            raise ValueError(f"tokens cannot be kept as {self.dtype}")
        self._lengths = array("i")
        self._bounds = array("q", [0])
        self.size_bytes = 0
        self._temporary = [Path(f"{path}.{os.getpid()}.tmp") for path in pair(prefix)]
        with self._writable(self._temporary[0]):
            self._bin = _create(self._temporary[0])

    def __enter__(self) -> IndexedWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()

    @property
    def num_documents(self) -> int:
        """Documents closed so far."""
        return len(self._bounds) - 1

    def add_sequence(self, tokens: npt.ArrayLike) -> None:
        """Append one sequence to the document that is being written."""
        sequence = np.asarray(tokens, dtype=self.dtype)
        self._append(sequence.tobytes())
        self._lengths.append(len(sequence))

    def end_document(self) -> None:
        """Close the document; without a sequence since the last one it is an empty document."""
        self._bounds.append(len(self._lengths))

    def add_document(self, tokens: npt.ArrayLike, lengths: Sequence[int] | None = None) -> None:
        """Append a whole document.

        Args:
            tokens: of all its sequences, one behind the other.
            lengths: tokens of each sequence; None: one sequence, or none where there are no tokens.
        """
        whole = np.asarray(tokens, dtype=self.dtype)
        sizes = ([len(whole)] if len(whole) else []) if lengths is None else list(lengths)
        counts = np.array([len(sizes)], np.int64)
        self.add_encoded(whole.tobytes(), np.array(sizes, np.int32), counts)

    def add_encoded(
        self,
        data: bytes | memoryview,
        lengths: npt.NDArray[np.int32],
        sequences_per_document: npt.NDArray[np.int64],
    ) -> None:
        """Append many whole documents at once.

        Args:
            data: their tokens, as they are to lie in the .bin.
            lengths: tokens of each sequence.
            sequences_per_document: sequences of each document, 0 for an empty one.
        """
        tokens = int(lengths.sum(dtype=np.int64))
        if len(data) != tokens * self.dtype.itemsize:
            raise ValueError(f"{len(data)} bytes cannot be {tokens} tokens of {self.dtype}")
        if int(sequences_per_document.sum()) != len(lengths):
            raise ValueError("the documents do not cover the sequences")
        if self._bounds[-1] != len(self._lengths):
            raise ValueError("a document is open: end it first")
        bounds = len(self._lengths) + np.cumsum(sequences_per_document, dtype=np.int64)
        self._append(data)
        self._lengths.frombytes(np.ascontiguousarray(lengths, dtype=np.int32).tobytes())
        self._bounds.frombytes(bounds.tobytes())

    def finish(self) -> None:
        """Write the index, force both files to the disk and give them their names, .idx last."""
        if self._bounds[-1] != len(self._lengths):
            self.end_document()
        bin_path, idx_path = pair(self.prefix)
        lengths = np.frombuffer(self._lengths, np.int32)
        offsets = np.zeros(len(lengths), np.int64)
        np.cumsum(lengths[:-1], out=offsets[1:])
        offsets *= self.dtype.itemsize
        index = Index(self.dtype, lengths, offsets, np.frombuffer(self._bounds, np.int64))
        with self._writable(self._temporary[1]):
            idx = _create(self._temporary[1])
            with idx:
                write_index(idx, index)
                _settle(idx)
            with self._bin:
                _settle(self._bin)
            # An old index must never be seen beside the new tokens.
            idx_path.unlink(missing_ok=True)
            self._temporary[0].replace(bin_path)
            self._temporary[1].replace(idx_path)
            folder = os.open(bin_path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def abandon(self) -> None:
        """Remove what was written; a pair that had the name before is left as it was."""
        # On a full disk: what could not be written is not wanted any more.
        with suppress(OSError):
            self._bin.close()
        for path in self._temporary:
            path.unlink(missing_ok=True)

    def _append(self, data: bytes | memoryview) -> None:
        with self._writable(self._temporary[0]):
            self._bin.write(data)
        self.size_bytes += len(data)

    @contextmanager
    def _writable(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if hasattr(self, "_bin"):
                self.abandon()
            raise UnwritablePath(
                f"cannot write {path}: {error.strerror}",
                next_step="Name another folder with --output-prefix, or make room there.",
            ) from error


def _create(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)  # of a run that was killed, and had our process number
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    return os.fdopen(handle, "wb", buffering=1 << 20)


def _settle(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
