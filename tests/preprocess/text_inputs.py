"""Texts and tokenizers for the tests of preprocessing, made on the spot."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from relkit.data.tokenizer import TokenizerSpec

SONNETS = Path(__file__).resolve().parents[2] / "examples" / "data" / "sonnets.txt"

# All that a rule about words may trip over: every kind of white space, of letters and of digits.
ODD_TEXTS = (
    "",
    " ",
    "It's we'll they'RE 'tis don''t\n\n  indented\tcode()  { return 0x1F; }  ",
    "caf\u00e9 na\u00efve \u201cquoted\u201d \u2014 dash, 1\u00bd 2\u00b2",
    "\u0663\u0664 \u4e00\u4e8c\u4e09",
    "nbsp\u00a0here \u2003em\u3000wide \u0085nel \u2028line \u180e \u200b zero",
    "control \x0b \x0c \x1c\x1d \x1e \x1f end\r\n",
    "\U0001f600 emoji\U0001f468\u200d\U0001f469 e\u0301 combining",
    "<|endoftext|> inside <|endoftext|>",
    "x" * 300 + " " * 70 + "y",
)


def stanzas() -> list[str]:
    """Real text, a document a sonnet."""
    return [part.strip() for part in SONNETS.read_text().split("\n\n") if part.strip()]


@cache
def trained() -> Tokenizer:
    """A byte-level BPE of 700 tokens, the last one for the end of documents."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=699,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(stanzas(), trainer)
    return library


def gpt2_files(folder: Path) -> TokenizerSpec:
    """vocab.json and merges.txt of the trained tokenizer."""
    trained().model.save(str(folder))
    path = folder / "vocab.json"
    vocab = json.loads(path.read_text())
    vocab["<|endoftext|>"] = len(vocab)
    path.write_text(json.dumps(vocab))
    return TokenizerSpec("GPT2BPETokenizer", str(path), str(folder / "merges.txt"))


def write_jsonl(path: Path, texts: list[str]) -> Path:
    """One object a line, as the guide's conversion writes them."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path
