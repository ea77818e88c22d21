"""A token data set on disk: PREFIX.bin with the tokens, PREFIX.idx with their bounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.data.index_file import pair, read_index
from relkit.data.indexed_writer import IndexedWriter
from relkit.errors import BadInputFile
from relkit.files.input_file import open_input

__all__ = ["IndexedDataset", "IndexedWriter", "Tokens"]

Tokens = npt.NDArray[Any]


class IndexedDataset:
    """A memory-mapped .bin/.idx pair: `dataset[i]` is a view of sequence i, nothing is copied.

    Args:
        prefix: path of both files without .bin and .idx.

    Attributes:
        raw: the whole .bin, read-only.

    Raises:
        BadInputFile: one of the two is missing, foreign, truncated, or does not fit the other.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        bin_path, idx_path = pair(prefix)
        try:
            with open_input(bin_path) as stream:
                size = self.bin_size_bytes = os.fstat(stream.fileno()).st_size
                # An empty file cannot be mapped.
                mapped = np.memmap(stream, mode="r") if size else np.empty(0, np.uint8)
        except OSError as error:
            raise BadInputFile(
                f"cannot read {bin_path}: {error.strerror}",
                next_step="Name the prefix of a .bin/.idx pair, without the endings.",
            ) from error
        self.index = read_index(idx_path, self.bin_size_bytes)
        self.raw = memoryview(mapped.data)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the tokens."""
        return self.index.dtype

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each sequence."""
        return self.index.lengths

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each sequence begins in the .bin, bytes."""
        return self.index.offsets

    @property
    def document_indices(self) -> npt.NDArray[np.int64]:
        """First sequence of each document, and the number of sequences as the last entry."""
        return self.index.document_indices

    @property
    def num_documents(self) -> int:
        """Documents, the empty ones too."""
        return len(self.index.document_indices) - 1

    def num_tokens(self) -> int:
        """Tokens of all sequences (adds up the index at every call)."""
        return int(self.lengths.sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.index.lengths)

    def __getitem__(self, number: int) -> Tokens:
        return self.get(number)

    def get(self, number: int, offset: int = 0, length: int | None = None) -> Tokens:
        """A part of one sequence, as a read-only view.

        Args:
            number: of the sequence, from 0.
            offset: first token, within the sequence.
            length: tokens; None: to the end of the sequence.

        Raises:
            IndexError: there is no such sequence, or it is shorter.
        """
        if not 0 <= number < len(self):
            raise IndexError(f"sequence {number} of {len(self)} in {self.prefix}")
        whole = int(self.index.lengths[number])
        count = whole - offset if length is None else length
        if offset < 0 or count < 0 or offset + count > whole:
            raise IndexError(f"tokens {offset} to {offset + count} of {whole} in {self.prefix}")
        start = int(self.index.offsets[number]) + offset * self.dtype.itemsize
        return np.frombuffer(self.raw, dtype=self.dtype, count=count, offset=start)

    def span(self, first: int, last: int) -> memoryview:
        """The bytes of sequences first to last (not itself) of a packed data set."""
        starts, size = self.index.offsets, self.bin_size_bytes
        begin = int(starts[first]) if first < len(self) else size
        return self.raw[begin : int(starts[last]) if last < len(self) else size]

    def is_packed(self) -> bool:
        """Whether the .bin is exactly its sequences, one behind the other, in order."""
        starts = self.offsets
        ends = starts + self.lengths.astype(np.int64) * self.dtype.itemsize
        if not len(self):
            return self.bin_size_bytes == 0
        follows = np.array_equal(ends[:-1], starts[1:])
        return bool(starts[0] == 0 and ends[-1] == self.bin_size_bytes and follows)
