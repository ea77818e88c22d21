"""Index files that are truncated, foreign or lie: named errors, never a crash or a wrong token."""

from __future__ import annotations

import struct
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from relkit.data import index_file
from relkit.data.index_file import FAIRSEQ_MAGIC, HEADER, MAGIC
from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.errors import BadInputFile

# Three documents of two sequences, one and none; 6 tokens of 2 bytes.
WHOLE = (
    HEADER.pack(MAGIC, 1, 8, 3, 4)
    + struct.pack("<3i", 3, 2, 1)
    + struct.pack("<3q", 0, 6, 10)
    + struct.pack("<4q", 0, 2, 3, 3)
)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    with IndexedWriter(tmp_path / "p", np.uint16) as writer:
        for doc in ([1, 2, 3], [4, 5], [6]):
            writer.add_document(doc)
    return tmp_path / "p"


def index_of(prefix: Path) -> bytearray:
    return bytearray(Path(f"{prefix}.idx").read_bytes())


def refused(prefix: Path, index: bytes | bytearray, words: str) -> None:
    Path(f"{prefix}.idx").write_bytes(index)
    with pytest.raises(BadInputFile, match=words):
        IndexedDataset(prefix)


def test_every_truncation_is_refused(prefix: Path) -> None:
    whole = bytes(index_of(prefix))
    refused(prefix, b"", "not a token index")
    for size in range(1, len(whole)):
        refused(prefix, whole[:size], "truncated")


def test_foreign_files_are_refused_by_what_they_are(prefix: Path) -> None:
    whole = index_of(prefix)
    refused(prefix, b"PK\x03\x04" + bytes(100), "not a token index")
    refused(prefix, FAIRSEQ_MAGIC + bytes(100), "old 'lazy' or 'cached' kind")
    refused(prefix, whole + b"12", "2 bytes too many")
    whole[9] = 2
    refused(prefix, whole, "version 2")
    whole[9], whole[17] = 1, 9
    refused(prefix, whole, "token type 9")


def test_counts_that_no_file_could_hold_are_refused(prefix: Path) -> None:
    head = HEADER.pack(b"MMIDIDX\0\0", 1, 8, 2**63, 2**62)
    refused(prefix, head + bytes(100), "truncated")


@pytest.mark.parametrize(
    ("at", "fmt", "value", "words"),
    [
        (34, "<i", 4, None),  # overlaps its neighbour: allowed by the format, but not packed
        (34, "<i", -1, "sequence 0 has -1 tokens"),
        (42, "<i", 2, "sequence 2 has 2 tokens from byte 10, and the .bin has 12"),
        (46, "<q", -2, "sequence 0"),
        (62, "<q", 2**62, "sequence 2"),
        (62, "<q", 2**63 - 1, "sequence 2"),
        (70, "<q", 1, "bounds are 1 to 3"),
        (94, "<q", 2, "bounds are 0 to 2"),
        (78, "<q", 3, "document 1 ends before it begins"),
    ],
)
def test_an_entry_that_cannot_be_is_named(
    prefix: Path, at: int, fmt: str, value: int, words: str | None
) -> None:
    index = index_of(prefix)
    struct.pack_into(fmt, index, at, value)
    if words:
        refused(prefix, index, words)
        return
    Path(f"{prefix}.idx").write_bytes(index)
    assert not IndexedDataset(prefix).is_packed()


def test_a_shorter_bin_is_pointed_past(prefix: Path) -> None:
    Path(f"{prefix}.bin").write_bytes(b"123")
    with pytest.raises(BadInputFile, match=r"points past its \.bin: sequence 0"):
        IndexedDataset(prefix)


def test_a_bin_is_refused_from_one_missing_byte_on(prefix: Path) -> None:
    path = Path(f"{prefix}.bin")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    words = r"sequence 2 has 1 tokens from byte 10, and the \.bin has 11 bytes"
    with pytest.raises(BadInputFile, match=words):
        IndexedDataset(prefix)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BadInputFile, match=r"points past its \.bin"):
            IndexedDataset(prefix)
    path.write_bytes(whole)
    assert IndexedDataset(prefix).is_packed()


def test_an_entry_at_the_edge_of_two_chunks_is_seen(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_CHUNK", 1)
    index = index_of(prefix)
    struct.pack_into("<q", index, 78, 3)
    refused(prefix, index, "document 1 ends before it begins")


def test_a_gap_before_between_or_behind_sequences_is_not_packed(prefix: Path) -> None:
    path, whole = Path(f"{prefix}.bin"), Path(f"{prefix}.bin").read_bytes()
    assert IndexedDataset(prefix).is_packed()
    path.write_bytes(whole + b"12")
    assert not IndexedDataset(prefix).is_packed()
    for moved in ((0, 1, 2), (1, 2)):
        index = bytearray(WHOLE)
        for number in moved:
            struct.pack_into("<q", index, 46 + 8 * number, (0, 6, 10)[number] + 2)
        Path(f"{prefix}.idx").write_bytes(index)
        assert not IndexedDataset(prefix).is_packed(), moved


@pytest.mark.parametrize("ending", ["bin", "idx"])
def test_a_missing_half_is_named(prefix: Path, ending: str) -> None:
    Path(f"{prefix}.{ending}").unlink()
    with pytest.raises(BadInputFile, match=rf"p\.{ending}: No such file"):
        IndexedDataset(prefix)


def test_modes_of_multimodal_data_are_read(prefix: Path) -> None:
    Path(f"{prefix}.idx").write_bytes(index_of(prefix) + bytes([0, 1, 2]))
    modes = IndexedDataset(prefix).index.modes
    assert modes is not None
    assert modes.tolist() == [0, 1, 2]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_index_is_refused_or_safe_to_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    Path(f"{folder / 'p'}.bin").write_bytes(bytes(12))
    index = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        index[data.draw(st.integers(0, len(index) - 1))] = data.draw(st.integers(0, 255))
    Path(f"{folder / 'p'}.idx").write_bytes(index)
    try:
        read = IndexedDataset(folder / "p")
    except BadInputFile:
        return
    for number in range(len(read)):
        assert len(read[number]) == read.lengths[number]
