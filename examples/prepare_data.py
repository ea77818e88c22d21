"""Make what training needs from examples/data, with no download: a corpus and a tokenizer.

    python examples/prepare_data.py

writes ./corpus.json (one {"text": ...} a line, a sonnet each) and a small byte-level BPE in GPT-2's
two files, ./gpt-tokenizer/gpt2-vocab.json and gpt2-merges.txt. Then tokenize the corpus:

    relkit data preprocess --input corpus.json --output-prefix gpt_pretrain_data/sonnets \
        --tokenizer-type GPT2BPETokenizer --vocab-file gpt-tokenizer/gpt2-vocab.json \
        --merge-file gpt-tokenizer/gpt2-merges.txt --append-eod --workers 2
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from tokenizers import ByteLevelBPETokenizer

# A sonnet begins with its number, which stands alone on a line.
NUMBER = re.compile(r"^[IVXLC]+$", re.MULTILINE)


def sonnets(folder: Path) -> list[str]:
    """The poems in all .txt files of a folder."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt")))
    return [poem.strip() for poem in NUMBER.split(text) if poem.strip()]


def main() -> None:
    """Write the corpus and the tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--into", type=Path, default=Path())
    parser.add_argument("--vocab-size", type=int, default=512)
    options = parser.parse_args()

    documents = sonnets(options.data)
    corpus = options.into / "corpus.json"
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8"
    )
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        documents,
        vocab_size=options.vocab_size,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    folder = options.into / "gpt-tokenizer"
    folder.mkdir(exist_ok=True)
    tokenizer.save_model(str(folder), "gpt2")
    print(
        f"{len(documents)} documents in {corpus}, {tokenizer.get_vocab_size()} tokens in {folder}"
    )


if __name__ == "__main__":
    main()
