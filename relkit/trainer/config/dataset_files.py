"""What the files of a data set say: which pair a folder holds, how many tokens a tokenizer has."""

from __future__ import annotations

from pathlib import Path

from relkit.data.tokenizer import ALIASES, TokenizerSpec, load_tokenizer
from relkit.errors import BadInputFile
from relkit.trainer.config.values import Values


def with_dataset_files(values: Values) -> Values:
    """The values, with what only the data's files can tell where it is not given.

    The tokenizer is as `relkit data preprocess` has it; a tokenizer.json is its vocab_file or its
    tokenizer_model. Its files are left alone where the size of the vocabulary is given.

    Raises:
        BadInputFile: a file is missing or damaged, or a folder holds no pair, or several.
        MissingExtra: the tokenizer's files need a package that is not installed.
        UsageProblem: there is no such tokenizer type, or it needs another file.
    """
    found = dict(values)
    if found.get("dataset.data_path"):
        found["dataset.data_path"] = _prefix(Path(found["dataset.data_path"]))
    vocab_file, model = (found.get(f"dataset.{key}") for key in ("vocab_file", "tokenizer_model"))
    kind = found.get("dataset.tokenizer_type")
    if not kind and (vocab_file or model):
        # What Megatron's pretrain_gpt.py takes where no type is given.
        kind = "GPT2BPETokenizer" if vocab_file else "HFTokenizer"
    if not kind:
        return found
    kind = found["dataset.tokenizer_type"] = ALIASES.get(kind, kind)
    wants_eod = found.get("dataset.eod_mask_loss") and found.get("dataset.eod_token") is None
    if wants_eod or found.get("model.vocab_size") is None:
        merges = found.get("dataset.merge_file") or ""
        tokenizer = load_tokenizer(TokenizerSpec(kind, vocab_file or model or "", merges))
        found.setdefault("model.vocab_size", tokenizer.vocab_size)
        if found.get("dataset.eod_token") is None:
            found["dataset.eod_token"] = tokenizer.eod
    return found


def _prefix(path: Path) -> str:
    """A prefix as Megatron wants it; the tutorial names the folder that the data is in."""
    # Beside a pair there is a folder of the prefix's own name: the cached sample indices.
    if not path.is_dir() or path.with_name(f"{path.name}.idx").exists():
        return str(path)
    pairs = sorted(found.with_suffix("") for found in path.glob("*.idx"))
    if len(pairs) != 1:
        names = ", ".join(pair.name for pair in pairs[:5]) or "none"
        raise BadInputFile(
            f"{path} is a folder with {len(pairs)} .bin/.idx pairs ({names}); one is needed",
            next_step="Name the prefix of a pair; `relkit data preprocess` writes one.",
        )
    return str(pairs[0])
