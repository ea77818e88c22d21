"""Whether a token data set is whole, and fits a vocabulary: every entry and every token is read."""

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
    """What a full read of a data set found.

    Args:
        documents, sequences, tokens: how many.
        token_min, token_max: the smallest and the largest token; 0 and -1 without tokens.
        without_eod: documents, of those that are not empty, which do not end with the
            end-of-document token; None where none was named.
        sha256: of the .bin.
        problems: what is wrong; empty: nothing.
        remarks: what is unusual, and allowed.
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
        vocab_size: tokens must be below it; None: only not negative.
        eod: the token that is to end each document; None: not looked at.
        progress: called with the bytes read and in all.

    Raises:
        BadInputFile: the pair cannot be opened: see `IndexedDataset`.
    """
    one = IndexedDataset(prefix)
    if one.dtype.kind == "f":
        raise BadInputFile(f"{prefix} holds {one.dtype.name} numbers, which are no tokens")
    digest = hashlib.sha256()
    least, most = 0, -1
    raw = one.raw
    for start in range(0, len(raw), _AT_A_TIME):
        piece = raw[start : start + _AT_A_TIME]
        digest.update(piece)
        if progress is not None:
            progress(start + len(piece), len(raw))
    for tokens in _tokens(one):
        least = min(least, int(tokens.min())) if most >= 0 else int(tokens.min())
        most = max(most, int(tokens.max()))
    problems: list[str] = []
    if least < 0:
        problems.append(f"a token is negative: {least}")
    if vocab_size is not None and most >= vocab_size:
        problems.append(f"token {most} is above the vocabulary of {vocab_size}")
    without = None if eod is None else _without_eod(one, eod)
    if without:
        problems.append(f"{without} documents do not end with token {eod}")
    return Verified(
        one.num_documents,
        len(one),
        one.num_tokens(),
        least,
        most,
        without,
        digest.hexdigest(),
        tuple(problems),
        tuple(_remarks(one)),
    )


def _tokens(one: IndexedDataset) -> Iterator[Tokens]:
    """All tokens, in arrays that are not empty; bytes that no sequence has are left out."""
    if one.is_packed():
        count = one.bin_size_bytes // one.dtype.itemsize
        for start in range(0, count, _AT_A_TIME):
            yield np.frombuffer(
                one.raw,
                one.dtype,
                min(_AT_A_TIME, count - start),
                start * one.dtype.itemsize,
            )
        return
    for number in range(len(one)):
        if one.lengths[number]:
            yield one[number]


def _without_eod(one: IndexedDataset, eod: int) -> int:
    bounds = one.document_indices
    full = np.flatnonzero(np.diff(bounds))
    return sum(1 for d in full if one[int(bounds[d + 1]) - 1][-1:].tolist() != [eod])


def _remarks(one: IndexedDataset) -> Iterator[str]:
    empty = int((np.diff(one.document_indices) == 0).sum())
    if empty:
        yield f"{empty} documents are empty"
    if not one.is_packed():
        yield f"{pair(one.prefix)[0]} is not its sequences in order: there are gaps or overlaps"
    if one.num_documents == 1 and len(one) > 1:
        yield "all sequences are one document, as an older Spark preprocessing wrote them"
