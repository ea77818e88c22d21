"""OpenAI's encodings through the tiktoken library: GPT-NeoX's TiktokenTokenizer."""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relkit.data.index_file import token_dtype
from relkit.errors import BadInputFile, MissingExtra, UsageProblem
from relkit.files.input_file import read_input_text

EOD_TOKEN = "<|endoftext|>"  # noqa: S105 (a token of text)
# Whose rule cuts texts into words where a file is of none that tiktoken knows.
USUAL = "cl100k_base"
_MAX_BYTES = 1 << 30


class TiktokenTokenizer:
    """An encoding by its name, or of a .tiktoken file; no text in a document is special.

    Args:
        vocab_file: a name, which tiktoken finds in TIKTOKEN_CACHE_DIR or downloads; or a file of
            lines of a token in base64 and its number. One that is named after an encoding
            (cl100k_base.tiktoken) has its rule and its special tokens, any other those of a
            new one: the rule of cl100k_base, and <|endoftext|> behind its last token.
        eod_token: text of the end-of-document token; "": <|endoftext|>.
    """

    def __init__(self, vocab_file: str, eod_token: str = "") -> None:
        try:
            import tiktoken
        except ImportError as error:
            raise MissingExtra(
                "TiktokenTokenizer needs the tiktoken package", next_step="pip install tiktoken"
            ) from error
        path = Path(vocab_file)
        if path.is_file():
            encoding = tiktoken.Encoding(**_of_file(path))
        elif vocab_file not in tiktoken.list_encoding_names():
            raise BadInputFile(
                f"cannot read {vocab_file}: there is no such file, and no encoding of that name",
                next_step=f"Encodings are {', '.join(tiktoken.list_encoding_names())}.",
            )
        else:
            encoding = _by_name(tiktoken, vocab_file)
        self._encode = encoding.encode_ordinary
        self.vocab_size: int = encoding.n_vocab
        try:
            self.eod: int | None = encoding.encode_single_token(eod_token or EOD_TOKEN)
        except KeyError as error:
            if eod_token:
                raise UsageProblem(f"the tokenizer has no token {eod_token!r}") from error
            self.eod = None
        self._code = "H" if token_dtype(self.vocab_size).itemsize == 2 else "i"

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """The tokens of each text."""
        return [array(self._code, self._encode(text)).tobytes() for text in texts]


def _by_name(tiktoken: Any, name: str) -> Any:  # noqa: ANN401
    try:
        return tiktoken.get_encoding(name)
    except OSError as error:  # of its downloads, too
        raise BadInputFile(
            f"tiktoken has no file of {name} here, and cannot download it: {type(error).__name__}",
            next_step=f"Set TIKTOKEN_CACHE_DIR, or name a {name}.tiktoken with --vocab-file.",
        ) from error


def _of_file(path: Path) -> dict[str, Any]:
    """What tiktoken's own constructor of that name says, with the tokens of the file."""
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    tokens = _tokens(path)
    # The same tokens, which tiktoken reads from files of another form under this name.
    name = "r50k_base" if path.stem == "gpt2" else path.stem
    known = name in openai_public.ENCODING_CONSTRUCTORS
    loader = "load_tiktoken_bpe"
    original = getattr(openai_public, loader)
    setattr(openai_public, loader, lambda *_, **__: tokens)
    try:
        said = openai_public.ENCODING_CONSTRUCTORS[name if known else USUAL]()
    finally:
        setattr(openai_public, loader, original)
    if known and said.get("explicit_n_vocab", 0) in (0, len(tokens) + len(said["special_tokens"])):
        return dict(said)
    return {
        "name": path.stem,
        "pat_str": said["pat_str"],
        "mergeable_ranks": tokens,
        "special_tokens": {EOD_TOKEN: max(tokens.values()) + 1},
    }


def _tokens(path: Path) -> dict[bytes, int]:
    try:
        lines = read_input_text(path, _MAX_BYTES).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputFile(f"cannot read {path}: {error}") from error
    tokens: dict[bytes, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            tokens[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise BadInputFile(
                f"{path} line {number} is no token in base64 and its number"
            ) from error
    missing = {bytes([byte]) for byte in range(256)} - tokens.keys()
    if missing:
        raise BadInputFile(f"{path} has no token of the byte {min(missing)!r}")
    return tokens
