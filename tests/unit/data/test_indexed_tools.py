"""Merging, checking and looking into token data sets."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from relkit.data import merge as merging
from relkit.data.index_file import HEADER, MAGIC
from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.data.inspect import facts
from relkit.data.merge import merge
from relkit.data.verify import verify
from relkit.errors import BadInputFile, UsageProblem


def write(prefix: Path, docs: list[list[list[int]]], dtype: str = "<u2") -> str:
    with IndexedWriter(prefix, dtype) as writer:
        for doc in docs:
            writer.add_document([t for s in doc for t in s], [len(s) for s in doc])
    return str(prefix)


def write_with_gaps(prefix: Path) -> str:
    """Two sequences in the other order, with two bytes between them."""
    Path(f"{prefix}.bin").write_bytes(struct.pack("<4H", 3, 999, 1, 2))
    index = HEADER.pack(MAGIC, 1, 8, 2, 2) + struct.pack("<2i2q2q", 2, 1, 4, 0, 0, 2)
    Path(f"{prefix}.idx").write_bytes(index)
    return str(prefix)


A = [[[1, 2], [3]], [], [[4]]]
B = [[[5]], [[6, 7]]]


@pytest.mark.parametrize("at_a_time", [1, 2, 4096])
def test_merging_is_writing_all_documents_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(merging, "DOCUMENTS_AT_A_TIME", at_a_time)
    parts = [write(tmp_path / "a", A), write(tmp_path / "none", []), write(tmp_path / "b", B)]
    told: list[tuple[int, int]] = []
    merge(parts, str(tmp_path / "all"), lambda *figures: told.append(figures))
    expected = write(tmp_path / "expected", A + B)
    for ending in ("bin", "idx"):
        written = (tmp_path / f"all.{ending}").read_bytes()
        assert written == Path(f"{expected}.{ending}").read_bytes()
    assert told[-1] == (14, 14)


def test_a_foreign_bin_with_gaps_is_merged_sequence_by_sequence(tmp_path: Path) -> None:
    merge([write_with_gaps(tmp_path / "a")], str(tmp_path / "all"))
    whole = IndexedDataset(tmp_path / "all")
    assert [whole[n].tolist() for n in range(2)] == [[1, 2], [3]]
    assert whole.is_packed()


def test_what_cannot_be_merged_is_named(tmp_path: Path) -> None:
    small, wide = write(tmp_path / "a", A), write(tmp_path / "b", B, "<i4")
    with pytest.raises(BadInputFile, match=r"b has tokens of int32, and .*a of uint16"):
        merge([small, wide], str(tmp_path / "all"))
    with pytest.raises(UsageProblem, match="both an input and the output"):
        merge([small], small)
    with pytest.raises(UsageProblem, match="nothing"):
        merge([], small)
    index = Path(f"{small}.idx")
    index.write_bytes(index.read_bytes() + bytes(3))
    with pytest.raises(BadInputFile, match="multimodal"):
        merge([small], str(tmp_path / "all"))
    assert not (tmp_path / "all.bin").exists()


def test_a_whole_data_set_is_told_in_figures(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", A)
    found = verify(prefix, vocab_size=5, eod=None)
    assert (found.documents, found.sequences, found.tokens) == (3, 3, 4)
    assert (found.token_min, found.token_max) == (1, 4)
    assert found.sha256 == hashlib.sha256(struct.pack("<4H", 1, 2, 3, 4)).hexdigest()
    assert not found.problems
    assert found.remarks == ("1 documents are empty",)


def test_tokens_that_do_not_fit_the_vocabulary_are_problems(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", [[[1, -2, 9]], [[9]], [[1]]], "<i4")
    problems = verify(prefix, vocab_size=9, eod=9).problems
    assert problems == (
        "a token is negative: -2",
        "token 9 is above the vocabulary of 9",
        "1 documents do not end with token 9",
    )


def test_minus_one_is_a_negative_token(tmp_path: Path) -> None:
    assert verify(write(tmp_path / "n", [[[1, -1]]], "<i4")).problems == (
        "a token is negative: -1",
    )


def test_an_empty_document_needs_no_end_of_document(tmp_path: Path) -> None:
    assert verify(write(tmp_path / "e", [[], [[5, 9]], [], [[4]], []]), eod=9).without_eod == 1


def test_what_is_unusual_is_remarked(tmp_path: Path) -> None:
    found = verify(write_with_gaps(tmp_path / "a"))
    assert found.token_max == 3
    assert len(found.remarks) == 2
    assert "gaps or overlaps" in found.remarks[0]
    assert "are one document" in found.remarks[1]
    assert verify(write(tmp_path / "none", [])).token_max == -1
    with pytest.raises(BadInputFile, match="float32 numbers"):
        verify(write(tmp_path / "f", [], "<f4"))


def test_the_facts_of_a_data_set(tmp_path: Path) -> None:
    told = facts(IndexedDataset(write(tmp_path / "a", A)), show=3)
    assert told["documents"] == 3
    assert told["empty_documents"] == 1
    assert (told["length_min"], told["length_median"], told["length_max"]) == (1, 1.0, 2)
    assert told["first_tokens"] == [[1, 2], [3]]
    assert facts(IndexedDataset(write(tmp_path / "none", [])))["length_max"] == 0
    assert np.dtype(told["dtype"]) == np.uint16
