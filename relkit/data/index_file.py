"""The .idx half of a token data set: where each sequence lies in the .bin, and the documents.

Layout (little endian), as Megatron writes it: the magic "MMIDIDX" and two zero bytes, u64 version
1, u8 code of the token type, u64 sequences, u64 document bounds, then int32 lengths in tokens,
int64 byte offsets into the .bin, int64 document bounds (first 0, last the number of sequences),
and, for multimodal data only, one int8 mode a sequence.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from relkit.errors import BadInputFile
from relkit.files.input_file import open_input

MAGIC = b"MMIDIDX\x00\x00"
FAIRSEQ_MAGIC = b"TNTIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    6: np.dtype("<f8"),
    7: np.dtype("<f4"),
    8: np.dtype("<u2"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}

# Entries looked at at a time: checking an index of a billion sequences needs no memory of its own.
_CHUNK = 1 << 20


def pair(prefix: str | Path) -> tuple[Path, Path]:
    """The .bin and the .idx of a prefix ("data/alpaca_text_document"; a dot in it is kept)."""
    return Path(f"{prefix}.bin"), Path(f"{prefix}.idx")


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The type Megatron keeps tokens of such a vocabulary in: u16 below 65,500, else int32."""
    return DTYPES[8] if vocab_size < 65500 else DTYPES[4]


@dataclass(frozen=True, slots=True)
class Index:
    """A checked .idx file; the arrays are views of the mapped file.

    Args:
        dtype: type of the tokens in the .bin.
        lengths: tokens of each sequence.
        offsets: where each sequence begins in the .bin, bytes.
        document_indices: document d is the sequences document_indices[d] to [d + 1]; one more entry
            than there are documents. A document may be empty.
        modes: mode of each sequence, in multimodal data.
    """

    dtype: np.dtype[Any]
    lengths: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    document_indices: npt.NDArray[np.int64]
    modes: npt.NDArray[np.int8] | None = None


def read_index(path: Path, bin_size_bytes: int) -> Index:
    """Map and check an .idx file.

    Args:
        path: the .idx file.
        bin_size_bytes: size of the .bin beside it, which no sequence may reach past.

    Raises:
        BadInputFile: not an index, truncated, of another version, contradicting itself, or pointing
            past the .bin; the message says which entry.
    """
    raw, code, sequences, bounds = _map(path)
    whole = _size_bytes(sequences, bounds)

    def part(dtype: str, count: int, start: int) -> npt.NDArray[Any]:
        # A view of the mapping, without memmap's cost at every later access.
        return np.frombuffer(raw, dtype=dtype, count=count, offset=start)

    offsets_at = HEADER.size + 4 * sequences
    bounds_at = offsets_at + 8 * sequences
    index = Index(
        DTYPES[code],
        part("<i4", sequences, HEADER.size),
        part("<i8", sequences, offsets_at),
        part("<i8", bounds, bounds_at),
        part("<i1", sequences, whole) if len(raw) > whole else None,
    )
    _check_documents(path, index)
    _check_sequences(path, index, bin_size_bytes)
    return index


def _size_bytes(sequences: int, bounds: int) -> int:
    """Size of an index without modes."""
    return HEADER.size + 12 * sequences + 8 * bounds


def _map(path: Path) -> tuple[npt.NDArray[np.uint8], int, int, int]:
    """The mapped file, the code of its token type, and how many sequences and bounds it has."""
    try:
        with open_input(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(HEADER.size)
            # An empty file cannot be mapped.
            raw = np.memmap(stream, mode="r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    if head.startswith(FAIRSEQ_MAGIC):
        raise BadInputFile(
            f"{path} is an index of the old 'lazy' or 'cached' kind",
            next_step="Write the data set again with `relkit data preprocess`.",
        )
    if head[: len(MAGIC)] != MAGIC[: len(head)] or not head:
        raise BadInputFile(f"{path} is not a token index: it does not begin with MMIDIDX")
    if len(head) < HEADER.size:
        raise BadInputFile(f"{path} is truncated: {size} bytes, and its header has {HEADER.size}")
    _, version, code, sequences, bounds = HEADER.unpack(head)
    if version != VERSION:
        raise BadInputFile(f"{path} has version {version} of the format; known is {VERSION}")
    if code not in DTYPES:
        raise BadInputFile(f"{path} has token type {code}; known are 1 to {max(DTYPES)}")
    whole = _size_bytes(sequences, bounds)
    if size < whole:
        raise BadInputFile(
            f"{path} is truncated: {size} bytes, and {sequences} sequences and {bounds} document"
            f" bounds need {whole}"
        )
    if size not in (whole, whole + sequences):
        raise BadInputFile(f"{path} has {size - whole} bytes too many behind its last entry")
    return raw, code, sequences, bounds


def write_index(stream: BinaryIO, index: Index) -> None:
    """Write an .idx file, byte for byte as Megatron does."""
    head = (MAGIC, VERSION, CODES[index.dtype], len(index.lengths), len(index.document_indices))
    stream.write(HEADER.pack(*head))
    for array, dtype in (
        (index.lengths, "<i4"),
        (index.offsets, "<i8"),
        (index.document_indices, "<i8"),
    ):
        stream.write(np.ascontiguousarray(array, dtype=dtype).data)
    if index.modes is not None:
        stream.write(np.ascontiguousarray(index.modes, dtype="<i1").data)


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, count, _CHUNK))


def _check_documents(path: Path, index: Index) -> None:
    bounds, sequences = index.document_indices, len(index.lengths)
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != sequences:
        ends = f"{bounds[0]} to {bounds[-1]}" if len(bounds) else "none"
        raise BadInputFile(
            f"{path} contradicts itself: its document bounds are {ends}, and it has"
            f" {sequences} sequences"
        )
    for piece in _chunks(len(bounds) - 1):
        falls = np.flatnonzero(np.diff(bounds[piece.start : piece.stop + 1]) < 0)
        if len(falls):
            number = piece.start + int(falls[0])
            raise BadInputFile(
                f"{path} contradicts itself: document {number} ends before it begins"
            )


def _check_sequences(path: Path, index: Index, bin_size_bytes: int) -> None:
    for piece in _chunks(len(index.lengths)):
        lengths = index.lengths[piece].astype(np.int64)
        starts = index.offsets[piece]
        # starts is held against the size first: so the sum below cannot overflow.
        bad = (lengths < 0) | (starts < 0) | (starts > bin_size_bytes)
        bad |= np.where(bad, 0, starts) + lengths * index.dtype.itemsize > bin_size_bytes
        wrong = np.flatnonzero(bad)
        if len(wrong):
            at = int(wrong[0])
            raise BadInputFile(
                f"{path} points past its .bin: sequence {piece.start + at} has {lengths[at]} tokens"
                f" from byte {starts[at]}, and the .bin has {bin_size_bytes} bytes",
                next_step="The .bin is truncated or of another data set: write the pair again.",
            )
