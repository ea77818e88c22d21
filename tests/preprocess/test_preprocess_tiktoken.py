"""TiktokenTokenizer: tiktoken's own tokens, of a file that is made here (nothing is downloaded)."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from relkit.data.tokenizer import TokenizerSpec, load_tokenizer
from relkit.errors import BadInputFile, UsageProblem
from tests.preprocess.text_inputs import ODD_TEXTS, stanzas

MERGED = (b" t", b" th", b" the", b"in", b" lo", b"ve", b" love", b"  ")


def write(path: Path) -> dict[bytes, int]:
    tokens = {bytes([byte]): byte for byte in range(256)}
    tokens |= {token: 256 + number for number, token in enumerate(MERGED)}
    path.write_text(
        "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in tokens.items())
    )
    return tokens


@pytest.mark.parametrize("name", ["own", "cl100k_base", "gpt2"])
def test_a_file_gives_the_librarys_tokens(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{name}.tiktoken"
    tokens = write(path)
    made = load_tokenizer(TokenizerSpec("TiktokenTokenizer", str(path)))
    loader = openai_public.load_tiktoken_bpe
    assert made.vocab_size >= len(tokens) + 1
    assert made.eod is not None
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: tokens)
    rule = openai_public.cl100k_base()["pat_str"]
    monkeypatch.undo()
    assert openai_public.load_tiktoken_bpe is loader
    if name != "gpt2":
        library = tiktoken.Encoding("own", pat_str=rule, mergeable_ranks=tokens, special_tokens={})
        texts = [*ODD_TEXTS, *stanzas()]
        dtype = np.uint16 if made.vocab_size < 65500 else np.int32
        assert [np.frombuffer(one, dtype).tolist() for one in made.encode_batch(texts)] == [
            library.encode_ordinary(text) for text in texts
        ]


def test_what_is_no_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.tiktoken"
    for content, words in (
        ("aGk= x\n", "line 1 is no token"),
        ("aGk= 1\n", "no token of the byte"),
    ):
        path.write_text(content)
        with pytest.raises(BadInputFile, match=words):
            load_tokenizer(TokenizerSpec("TiktokenTokenizer", str(path)))
    with pytest.raises(BadInputFile, match="no encoding of that name") as met:
        load_tokenizer(TokenizerSpec("TiktokenTokenizer", "cl100k"))
    assert "cl100k_base" in met.value.next_step
    write(path)
    with pytest.raises(UsageProblem, match="no token '<eos>'"):
        load_tokenizer(TokenizerSpec("TiktokenTokenizer", str(path), eod_token="<eos>"))  # noqa: S106
    with pytest.raises(UsageProblem, match="needs --vocab-file"):
        TokenizerSpec("TiktokenTokenizer")
