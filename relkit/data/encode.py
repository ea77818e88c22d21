"""JSON lines to tokens: what a worker does with one chunk."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.data.documents import Chunk
from relkit.data.index_file import token_dtype
from relkit.data.tokenizer import Tokenizer
from relkit.errors import BadInputFile, MissingExtra, UsageProblem


@dataclass(frozen=True, slots=True)
class Encoded:
    """The documents of one chunk under one key, ready for `IndexedWriter.add_encoded`."""

    data: bytes
    lengths: npt.NDArray[np.int32]
    sequences_per_document: npt.NDArray[np.int64]


class Encoder:
    """Encodes chunks of JSON lines.

    A document is the value of a key: a text, or a list of texts, which become a sequence each.
    A text without tokens is left out; a document without texts stays, empty.

    Args:
        tokenizer: text to tokens.
        keys: of the JSON objects.
        is_eod_appended: append the end-of-document token to each document that is not empty.
        is_repaired: have ftfy mend each text first, as GPT-NeoX's --ftfy does.

    Raises:
        MissingExtra: ftfy is not installed.
        UsageProblem: the token is to be appended, and the tokenizer has none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        keys: Sequence[str],
        *,
        is_eod_appended: bool,
        is_repaired: bool = False,
    ) -> None:
        self.dtype = token_dtype(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self._keys = tuple(keys)
        self._repair = _ftfy() if is_repaired else None
        self._eod = b""
        if is_eod_appended:
            if tokenizer.eod is None:
                raise UsageProblem(
                    "--append-eod: the tokenizer has no end-of-document token of a usual name",
                    next_step="Name it with --eod-token.",
                )
            self._eod = np.array([tokenizer.eod], self.dtype).tobytes()

    def encode(self, chunk: Chunk) -> list[Encoded]:
        """The chunk's documents under each key, in the keys' order.

        Raises:
            BadInputFile: a line is not a JSON object, or its value is not text; the line is named.
        """
        rows = _parse(chunk)
        return [self._encode_key(chunk, rows, key) for key in self._keys]

    def _encode_key(self, chunk: Chunk, rows: list[tuple[int, Any]], key: str) -> Encoded:
        texts: list[str] = []
        counts: list[int] = []
        for number, row in rows:
            value = row.get(key)
            of_document = value if isinstance(value, list) else [value]
            for text in of_document:
                if not isinstance(text, str):
                    raise _not_text(chunk, number, row, key)
                if not text.isascii():
                    _check_surrogates(chunk, number, key, text)
            texts += of_document
            counts.append(len(of_document))
        if self._repair is not None:
            texts = [self._repair(text) for text in texts]
        tokens = self._tokenizer.encode_batch(texts)

        pieces: list[bytes] = []
        lengths: list[int] = []
        per_document: list[int] = []
        at = 0
        for count in counts:
            kept = [encoded for encoded in tokens[at : at + count] if encoded]
            at += count
            if kept and self._eod:
                kept[-1] += self._eod
            pieces += kept
            lengths += map(len, kept)
            per_document.append(len(kept))
        sizes = np.array(lengths, np.int64) // self.dtype.itemsize
        return Encoded(
            b"".join(pieces), sizes.astype(np.int32), np.array(per_document, dtype=np.int64)
        )


def _ftfy() -> Callable[[str], str]:
    try:
        from ftfy import fix_text
    except ImportError as error:
        raise MissingExtra("--ftfy needs the ftfy package", next_step="pip install ftfy") from error
    return fix_text


def _at(chunk: Chunk, number: int) -> str:
    return f"{chunk.where}: {chunk.unit} {chunk.first + number}"


def _parse(chunk: Chunk) -> list[tuple[int, Any]]:
    """The objects of all lines that are not blank, each with the line's number in the chunk."""
    try:
        lines = chunk.data.decode().split("\n")
    except UnicodeDecodeError as error:
        number = chunk.data.count(b"\n", 0, error.start)
        raise BadInputFile(f"{_at(chunk, number)} is not UTF-8") from error
    rows: list[tuple[int, Any]] = []
    for number, line in enumerate(lines):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInputFile(f"{_at(chunk, number)} is not JSON: {error}") from error
        if isinstance(row, str):
            row = {"text": row}  # lm_dataformat's oldest form
        if not isinstance(row, dict):
            raise BadInputFile(f"{_at(chunk, number)} is not a JSON object")
        rows.append((number, row))
    return rows


def _not_text(chunk: Chunk, number: int, row: dict[str, Any], key: str) -> BadInputFile:
    if key in row:
        return BadInputFile(f"{_at(chunk, number)}: {key!r} is neither text nor a list of texts")
    return BadInputFile(
        f"{_at(chunk, number)} has no key {key!r}; it has {', '.join(map(str, row)) or 'none'}",
        next_step="Name the key with --json-keys.",
    )


def _check_surrogates(chunk: Chunk, number: int, key: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInputFile(
            f"{_at(chunk, number)}: {key!r} has half a character (a lone surrogate)"
        ) from error
