"""Text to tokens: the tokenizer types of Megatron's and GPT-NeoX's preprocessing, by name."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from relkit.data.index_file import token_dtype
from relkit.data.words import MemoisedWords, words_rule
from relkit.errors import BadInputFile, MissingExtra, UsageProblem
from relkit.files.input_file import read_input_text
from relkit.text.foreign_json import parse_json

KINDS = ("GPT2BPETokenizer", "HFTokenizer", "TiktokenTokenizer", "CharLevelTokenizer")
ALIASES = {"HuggingFaceTokenizer": "HFTokenizer", "HFGPT2Tokenizer": "GPT2BPETokenizer"}

# Vocabularies of a million tokens have some 30 MB.
_MAX_BYTES = 1 << 30

# Tried in this order where --eod-token names none.
EOD_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Which tokenizer, and where its files are.

    Args:
        kind: one of KINDS.
        vocab_file: vocab.json of GPT2BPETokenizer; tokenizer.json (or its folder) of HFTokenizer;
            a .tiktoken file, or the name of one of tiktoken's encodings, of TiktokenTokenizer.
        merge_file: merges.txt of GPT2BPETokenizer.
        eod_token: the text of the end-of-document token; "": one of EOD_TOKENS.
    """

    kind: str
    vocab_file: str = ""
    merge_file: str = ""
    eod_token: str = ""

    def __post_init__(self) -> None:
        needed = {
            "GPT2BPETokenizer": ("vocab_file", "merge_file"),
            "HFTokenizer": ("vocab_file",),
            "TiktokenTokenizer": ("vocab_file",),
        }
        if self.kind not in KINDS:
            raise UsageProblem(f"{self.kind!r} is not a tokenizer type; known: {', '.join(KINDS)}")
        for name in needed.get(self.kind, ()):
            if not getattr(self, name):
                raise UsageProblem(f"{self.kind} needs --{name.replace('_', '-')}")


class Tokenizer(Protocol):
    """What preprocessing needs of a tokenizer."""

    vocab_size: int
    eod: int | None

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """The tokens of each text, as they lie in a .bin of this vocabulary's token type."""
        ...


def load_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """Read the tokenizer's files.

    Raises:
        BadInputFile: a file is missing, or is not what it should be.
        MissingExtra: the `tokenizers` (or the `tiktoken`) package is not installed.
        UsageProblem: there is no token of the name that was given.
    """
    if spec.kind == "CharLevelTokenizer":
        return CharLevelTokenizer()
    if spec.kind == "TiktokenTokenizer":
        # Only here: it needs another library, which has its own way to files.
        from relkit.data.tiktoken_encoding import TiktokenTokenizer

        return TiktokenTokenizer(spec.vocab_file, spec.eod_token)
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtra(
            f"{spec.kind} needs the tokenizers package", next_step="pip install tokenizers"
        ) from error
    make = _byte_level_bpe if spec.kind == "GPT2BPETokenizer" else _from_json
    return LibraryTokenizer(make(tokenizers, spec), spec.eod_token)


class CharLevelTokenizer:
    """The bytes of the text's UTF-8; 512 tokens, of which 0 ends a document."""

    vocab_size = 512
    eod: int | None = 0

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """One token a byte."""
        return [np.frombuffer(text.encode(), np.uint8).astype("<u2").tobytes() for text in texts]


class LibraryTokenizer:
    """A tokenizer of the `tokenizers` library, without padding, truncation or threads of its own.

    Args:
        library: the loaded tokenizer.
        eod_token: text of the end-of-document token; "": the first of EOD_TOKENS that it knows.
    """

    def __init__(self, library: Any, eod_token: str = "") -> None:  # noqa: ANN401
        library.no_padding()
        library.no_truncation()
        self._library = library
        self.vocab_size: int = library.get_vocab_size()
        known = [library.token_to_id(name) for name in ([eod_token] if eod_token else EOD_TOKENS)]
        self.eod: int | None = next((token for token in known if token is not None), None)
        if eod_token and self.eod is None:
            raise UsageProblem(f"the tokenizer has no token {eod_token!r}")
        self._code = "H" if token_dtype(self.vocab_size).itemsize == 2 else "i"
        rule = words_rule(parse_json(library.to_str()))
        self._encode = MemoisedWords(rule, self._whole).encode_batch if rule else self._whole

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """Exactly the library's tokens, by way of its words where its rules allow that."""
        return self._encode(texts)

    def _whole(self, texts: Sequence[str]) -> list[bytes]:
        code = self._code
        return [
            array(code, encoding.ids).tobytes()
            for encoding in self._library.encode_batch_fast(texts)
        ]


def _byte_level_bpe(tokenizers: Any, spec: TokenizerSpec) -> Any:  # noqa: ANN401
    """GPT-2's byte-level BPE of a vocab.json and a merges.txt; no text in it is special."""
    vocab_path, merge_path = Path(spec.vocab_file), Path(spec.merge_file)
    try:
        vocab = parse_json(_text(vocab_path))
    except ValueError as error:
        raise BadInputFile(f"{vocab_path} is not JSON: {error}") from error
    if not isinstance(vocab, dict) or not all(isinstance(n, int) for n in vocab.values()):
        raise BadInputFile(f"{vocab_path} is not a vocabulary: an object of tokens and numbers")
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(_text(merge_path).split("\n"), 1):
        if not line.strip() or line.startswith("#version"):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2 or not {*parts, "".join(parts)} <= vocab.keys():
            raise BadInputFile(
                f"{merge_path} line {number} does not merge two tokens of {vocab_path}",
                next_step="Name the vocab.json and the merges.txt of one and the same tokenizer.",
            )
        merges.append((parts[0], parts[1]))
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


def _from_json(tokenizers: Any, spec: TokenizerSpec) -> Any:  # noqa: ANN401
    path = Path(spec.vocab_file)
    path = path / "tokenizer.json" if path.is_dir() else path
    text = _text(path)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises no narrower class
        raise BadInputFile(f"{path} is not a tokenizer.json: {error}") from error


def _text(path: Path) -> str:
    try:
        return read_input_text(path, _MAX_BYTES)
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputFile(f"{path} is not text: {error}") from error
