"""Whether a token data set is intact and fits a vocabulary; reads every entry and every token."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from relkit.data.index_file import pair
from relkit.data.indexed import IndexedDataset, Tokens
from relkit.errors import BadInputFile

_AT_A_TIME = 1 << 22


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of reading a whole data set.

    Args:
        documents, sequences, tokens: how many.
        token_min, token_max: the smallest and the largest token; 0 and -1 without tokens.
        without_eod: documents, of those that are not empty, which do not end with the
            end-of-document token; None where none was named.
        sha256: of the .bin.
        problems: what is wrong.
        remarks: what is unusual but allowed.
    """

    documents: int
    sequences: int
    tokens: int
    token_min: int
    token_max: int
    without_eod: int | None
    sha256: str
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def verify(
    prefix: str,
    *,
    vocab_size: int | None = None,
    eod: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verified:
    """Read a whole data set.

    Args:
        prefix: of the .bin and the .idx.
        vocab_size: tokens must be below it; None: they must not be negative.
        eod: the token that must end each document; None: not checked.
        progress: called with the bytes read and in all.

    Raises:
        BadInputFile: the pair cannot be opened: see `IndexedDataset`.
    """
    data_set = IndexedDataset(prefix)
    if data_set.dtype.kind == "f":
        raise BadInputFile(f"{prefix} holds {data_set.dtype.name} numbers, which are not tokens")
    sha256 = _sha256(data_set, progress)
    smallest, largest = 0, -1
    for tokens in _tokens(data_set):
        smallest = min(smallest, int(tokens.min())) if largest >= 0 else int(tokens.min())
        largest = max(largest, int(tokens.max()))
    problems: list[str] = []
    if smallest < 0:
        problems.append(f"a token is negative: {smallest}")
    if vocab_size is not None and largest >= vocab_size:
        problems.append(f"token {largest} is above the vocabulary of {vocab_size}")
    without = None if eod is None else _without_eod(data_set, eod)
    if without:
        problems.append(f"{without} documents do not end with token {eod}")
    return Verified(
        data_set.num_documents,
        len(data_set),
        data_set.num_tokens(),
        smallest,
        largest,
        without,
        sha256,
        tuple(problems),
        tuple(_remarks(data_set)),
    )


def _sha256(data_set: IndexedDataset, progress: Callable[[int, int], None] | None) -> str:
    digest, raw = hashlib.sha256(), data_set.raw
    for start in range(0, len(raw), _AT_A_TIME):
        piece = raw[start : start + _AT_A_TIME]
        digest.update(piece)
        if progress is not None:
            progress(start + len(piece), len(raw))
    return digest.hexdigest()


def _tokens(data_set: IndexedDataset) -> Iterator[Tokens]:
    """All tokens, in non-empty arrays; bytes that belong to no sequence are left out."""
    if data_set.is_packed():
        count = data_set.bin_size_bytes // data_set.dtype.itemsize
        for start in range(0, count, _AT_A_TIME):
            yield np.frombuffer(
                data_set.raw,
                data_set.dtype,
                min(_AT_A_TIME, count - start),
                start * data_set.dtype.itemsize,
            )
        return
    for number in range(len(data_set)):
        if data_set.lengths[number]:
            yield data_set[number]


def _without_eod(data_set: IndexedDataset, eod: int) -> int:
    bounds = data_set.document_indices
    full = np.flatnonzero(np.diff(bounds))
    return sum(1 for d in full if data_set[int(bounds[d + 1]) - 1][-1:].tolist() != [eod])


def _remarks(data_set: IndexedDataset) -> Iterator[str]:
    empty = int((np.diff(data_set.document_indices) == 0).sum())
    if empty:
        yield f"{empty} documents are empty"
    if not data_set.is_packed():
        yield f"{pair(data_set.prefix)[0]} has gaps or overlaps between its sequences"
    if data_set.num_documents == 1 and len(data_set) > 1:
        yield "all sequences are one document, as an older Spark preprocessing wrote them"
