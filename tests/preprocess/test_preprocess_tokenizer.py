"""Tokenizers: exactly the library's tokens, whichever way they came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from relkit.data import words
from relkit.data.tokenizer import LibraryTokenizer, TokenizerSpec, load_tokenizer
from relkit.data.words import words_rule
from relkit.errors import BadInputFile, UsageProblem
from tests.preprocess.text_inputs import ODD_TEXTS, gpt2_files, stanzas, trained


def tokens(encoded: list[bytes]) -> list[list[int]]:
    return [np.frombuffer(one, np.uint16).tolist() for one in encoded]


def like_neox() -> Tokenizer:
    """The shape of GPT-NeoX's 20B_tokenizer.json: NFC, and added tokens for runs of spaces."""
    library = Tokenizer.from_str(trained().to_str())
    library.normalizer = normalizers.NFC()
    library.post_processor = processors.ByteLevel(trim_offsets=True)
    library.add_special_tokens(["<|endoftext|>", "<|padding|>"])
    library.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return library


@pytest.mark.long
def test_every_kind_of_character_gives_the_librarys_tokens() -> None:
    # Unicode's white space ends at U+3000. Each character stands beside white space and letters.
    texts = [f"a{c} {c}b{c}\n{c}{c} 1{c}" for c in map(chr, range(0x3010))]
    texts += [*ODD_TEXTS, *stanzas()]
    for library in (trained(), like_neox()):
        expected = [one.ids for one in library.encode_batch(texts)]
        ours = LibraryTokenizer(Tokenizer.from_str(library.to_str()))
        assert tokens(ours.encode_batch(texts)) == expected
        # And once more, now that the words are known.
        assert tokens(ours.encode_batch(texts)) == expected


@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(
        st.text(
            alphabet=st.one_of(
                st.sampled_from("ab'stre 0!.\n\t\r\u00a0\u3000\u00e9\u4e00\x1c\u0301<|>"),
                st.characters(),
            )
        ),
        max_size=6,
    )
)
def test_any_text_is_the_librarys_tokens(texts: list[str]) -> None:
    texts = [text.encode(errors="replace").decode() for text in texts]
    for library, ours in LIBRARIES:
        assert tokens(ours.encode_batch(texts)) == [one.ids for one in library.encode_batch(texts)]


LIBRARIES = [(one, LibraryTokenizer(one)) for one in (trained(), like_neox())]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_WORDS", 50)
    ours = LibraryTokenizer(trained())
    for text in stanzas():
        assert tokens(ours.encode_batch([text])) == [trained().encode(text).ids]


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}},
        {"normalizer": {"type": "NFKC"}},
        {"post_processor": {"type": "TemplateProcessing"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
        {"model": {"type": "WordPiece"}},
        {"added_tokens": [{"content": "a b"}]},
        {"added_tokens": [{"content": "ab", "rstrip": True}]},
    ],
)
def test_other_rules_are_left_to_the_library(change: dict[str, Any]) -> None:
    plain = json.loads(trained().to_str())
    assert words_rule(plain) is not None
    assert words_rule({**plain, **change}) is None


def test_a_tokenizer_with_other_rules_gives_its_own_tokens(tmp_path: Path) -> None:
    vocab = {"<unk>": 0, "the": 1, "</s>": 2}
    library = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))  # noqa: S106
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.enable_truncation(2)
    library.enable_padding(length=9)
    library.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(TokenizerSpec("HFTokenizer", str(tmp_path)))
    # A data set has every token, and none to fill it up.
    assert tokens(ours.encode_batch(["the end of the line", ""])) == [[1, 0, 0, 1, 0], []]
    assert (ours.vocab_size, ours.eod) == (3, 2)


def test_gpt2_files_give_the_trained_tokenizer(tmp_path: Path) -> None:
    ours = load_tokenizer(gpt2_files(tmp_path))
    assert tokens(ours.encode_batch(stanzas())) == [trained().encode(t).ids for t in stanzas()]
    assert ours.eod == ours.vocab_size - 1
    with pytest.raises(UsageProblem, match="no token '<none>'"):
        load_tokenizer(TokenizerSpec(**{**vars_of(gpt2_files(tmp_path)), "eod_token": "<none>"}))


def vars_of(spec: TokenizerSpec) -> dict[str, str]:
    return {name: getattr(spec, name) for name in ("kind", "vocab_file", "merge_file")}


def test_characters_are_bytes() -> None:
    ours = load_tokenizer(TokenizerSpec("CharLevelTokenizer"))
    assert tokens(ours.encode_batch(["a\u00e9", ""])) == [[97, 195, 169], []]
    assert (ours.vocab_size, ours.eod) == (512, 0)


def test_bad_tokenizer_files_are_named(tmp_path: Path) -> None:
    spec = gpt2_files(tmp_path)
    merges, vocab = Path(spec.merge_file), Path(spec.vocab_file)
    good = merges.read_text()
    merges.write_text(good + "no such\n")
    with pytest.raises(BadInputFile, match=rf"merges.txt line {good.count(chr(10)) + 1} does not"):
        load_tokenizer(spec)
    vocab.write_text('["a"]')
    with pytest.raises(BadInputFile, match="not a vocabulary"):
        load_tokenizer(spec)
    vocab.write_text("{")
    with pytest.raises(BadInputFile, match="not JSON"):
        load_tokenizer(spec)
    vocab.unlink()
    with pytest.raises(BadInputFile, match="No such file"):
        load_tokenizer(spec)
    merges.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputFile, match="not text"):
        load_tokenizer(TokenizerSpec("HFTokenizer", str(merges)))
    merges.write_text("{}")
    with pytest.raises(BadInputFile, match=r"not a tokenizer\.json"):
        load_tokenizer(TokenizerSpec("HFTokenizer", str(merges)))
    with pytest.raises(UsageProblem, match="needs --merge-file"):
        TokenizerSpec("GPT2BPETokenizer", "vocab.json")
    with pytest.raises(UsageProblem, match="not a tokenizer type"):
        TokenizerSpec("BertWordPiece")
