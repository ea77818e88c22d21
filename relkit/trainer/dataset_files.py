"""What the files of a data set say: which pair a folder holds, how many tokens a tokenizer has."""

from __future__ import annotations

import json
from pathlib import Path

from relkit.errors import BadInputFile, MissingExtra
from relkit.trainer.config_values import Values

END_OF_DOCUMENT = "<|endoftext|>"


def with_dataset_files(values: Values) -> Values:
    """The values, with what only the data's files can tell where it is not given.

    Raises:
        BadInputFile: a file is missing, or a folder holds no pair, or several.
        MissingExtra: the tokenizer's file needs a package that is not installed.
    """
    found = dict(values)
    if found.get("dataset.data_path"):
        found["dataset.data_path"] = _prefix(Path(found["dataset.data_path"]))
    if found.get("dataset.vocab_file"):
        found.setdefault("dataset.tokenizer_type", "GPT2BPETokenizer")
    tokens = _tokens(found)
    if tokens is not None:
        found.setdefault("model.vocab_size", tokens[0])
        if tokens[1] is not None:
            found.setdefault("dataset.eod_token", tokens[1])
    return found


def _prefix(path: Path) -> str:
    """A prefix as Megatron wants it; the tutorial names the folder that the data is in."""
    if not path.is_dir():
        return str(path)
    pairs = sorted(found.with_suffix("") for found in path.glob("*.idx"))
    if len(pairs) != 1:
        names = ", ".join(pair.name for pair in pairs[:5]) or "none"
        raise BadInputFile(
            f"{path} is a folder with {len(pairs)} .bin/.idx pairs ({names}); one is needed",
            next_step="Name the prefix of a pair; `relkit data preprocess` writes one.",
        )
    return str(pairs[0])


def _tokens(values: Values) -> tuple[int, int | None] | None:
    """Tokens of the tokenizer and the end-of-document token; None: no file to look into."""
    if values.get("dataset.vocab_file"):
        path = Path(values["dataset.vocab_file"])
        vocabulary = _load(path)
        return len(vocabulary), vocabulary.get(END_OF_DOCUMENT)
    if values.get("dataset.tokenizer_model"):
        return _tokenizer_json(Path(values["dataset.tokenizer_model"]))
    return None


def _load(path: Path) -> dict[str, int]:
    try:
        vocabulary = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputFile(f"cannot read the vocabulary {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInputFile(f"the vocabulary {path} is not JSON: {error}") from error
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise BadInputFile(f"the vocabulary {path} is not an object of token: number")
    return vocabulary


def _tokenizer_json(path: Path) -> tuple[int, int | None]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(
            f"reading {path} needs tokenizers: {error}", next_step="pip install 'relkit[train]'"
        ) from error
    if not path.is_file():
        raise BadInputFile(f"there is no tokenizer {path}")
    tokenizer = Tokenizer.from_file(str(path))
    return tokenizer.get_vocab_size(), tokenizer.token_to_id(END_OF_DOCUMENT)
