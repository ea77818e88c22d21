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
    completed = dict(values)
    if completed.get("dataset.data_path"):
        completed["dataset.data_path"] = _prefix(Path(completed["dataset.data_path"]))
    vocab_file, model = (
        completed.get(f"dataset.{key}") for key in ("vocab_file", "tokenizer_model")
    )
    kind = completed.get("dataset.tokenizer_type")
    if not kind and (vocab_file or model):
        # What Megatron's pretrain_gpt.py takes where no type is given.
        kind = "GPT2BPETokenizer" if vocab_file else "HFTokenizer"
    if not kind:
        return completed
    kind = completed["dataset.tokenizer_type"] = ALIASES.get(kind, kind)
    wants_eod = (
        completed.get("dataset.eod_mask_loss") and completed.get("dataset.eod_token") is None
    )
    if wants_eod or completed.get("model.vocab_size") is None:
        merges = completed.get("dataset.merge_file") or ""
        tokenizer = load_tokenizer(TokenizerSpec(kind, vocab_file or model or "", merges))
        completed.setdefault("model.vocab_size", tokenizer.vocab_size)
        if completed.get("dataset.eod_token") is None:
            completed["dataset.eod_token"] = tokenizer.eod
    return completed


def _prefix(path: Path) -> str:
    """A prefix as Megatron wants it; the tutorial names the folder that the data is in."""
    # Beside a pair there is a folder of the prefix's own name: the cached sample indices.
    if not path.is_dir() or path.with_name(f"{path.name}.idx").exists():
        return str(path)
    pairs = sorted(index.with_suffix("") for index in path.glob("*.idx"))
    if len(pairs) != 1:
        names = ", ".join(pair.name for pair in pairs[:5]) or "none"
        raise BadInputFile(
            f"{path} is a folder with {len(pairs)} .bin/.idx pairs ({names}); one is needed",
            next_step="Name the prefix of a pair; `relkit data preprocess` writes one.",
        )
    return str(pairs[0])
