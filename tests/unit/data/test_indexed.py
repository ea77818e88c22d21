"""Token data sets: the bytes written are Megatron's, and what is read back is what was written."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from relkit.data.index_file import DTYPES, token_dtype
from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.errors import UnwritablePath

documents = st.lists(st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=3), max_size=6)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flat(sequences: list[list[int]]) -> list[int]:
    return [token for sequence in sequences for token in sequence]


def write(prefix: Path, dtype: str, docs: list[list[list[int]]]) -> None:
    with IndexedWriter(prefix, dtype) as writer:
        for doc in docs:
            for sequence in doc:
                writer.add_sequence(sequence)
            writer.end_document()


def test_the_golden_pair_is_written_byte_for_byte(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "a.b", np.uint16) as writer:
        writer.add_document([1, 2, 3])
        writer.add_document([4, 5])
    index = (tmp_path / "a.b.idx").read_bytes()
    assert len(index) == 82
    assert (
        hashlib.sha256(index).hexdigest()
        == "416ba3f8d9601192c5b0c9424ce7e61d6ac2d9d464dba8e5ee55deb8247de3aa"
    )
    assert (tmp_path / "a.b.bin").read_bytes().hex() == "01000200030004000500"
    assert names(tmp_path) == ["a.b.bin", "a.b.idx"]
    assert (tmp_path / "a.b.bin").stat().st_mode & 0o777 == 0o600


def test_a_vocabulary_decides_the_type_of_the_tokens() -> None:
    assert token_dtype(65499) == np.uint16
    assert token_dtype(65500) == np.int32


@settings(max_examples=60, deadline=None)
@given(docs=documents, dtype=st.sampled_from([d.str for d in DTYPES.values() if d.itemsize > 1]))
def test_every_way_of_writing_gives_the_same_pair_and_reads_back(
    tmp_path_factory: pytest.TempPathFactory, docs: list[list[list[int]]], dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    write(folder / "by_sequence", dtype, docs)
    with IndexedWriter(folder / "by_document", dtype) as writer:
        for doc in docs:
            writer.add_document(flat(doc), [len(sequence) for sequence in doc])
    with IndexedWriter(folder / "at_once", dtype) as writer:
        sequences = [sequence for doc in docs for sequence in doc]
        writer.add_encoded(
            np.array(flat(sequences), dtype).tobytes(),
            np.array([len(sequence) for sequence in sequences], np.int32),
            np.array([len(doc) for doc in docs], np.int64),
        )
    for ending in ("bin", "idx"):
        written = (folder / f"by_sequence.{ending}").read_bytes()
        assert (folder / f"by_document.{ending}").read_bytes() == written
        assert (folder / f"at_once.{ending}").read_bytes() == written

    read = IndexedDataset(folder / "at_once")
    assert [read[i].tolist() for i in range(len(read))] == sequences
    assert read.num_documents == len(docs)
    assert read.dtype == np.dtype(dtype)
    assert read.is_packed()


def test_a_part_of_a_sequence_is_a_read_only_view(tmp_path: Path) -> None:
    write(tmp_path / "p", "<i4", [[[7, 8, 9], [1]]])
    read = IndexedDataset(tmp_path / "p")
    assert read.get(0, 1).tolist() == [8, 9]
    assert read.get(0, 1, 1).tolist() == [8]
    assert read.get(1, 1).tolist() == []
    assert not read[0].flags.writeable
    for number, offset, length in (
        (2, 0, None),
        (-1, 0, None),
        (0, 4, None),
        (0, 1, 3),
        (0, 0, -1),
        (1, -1, 1),
    ):
        with pytest.raises(IndexError):
            read.get(number, offset, length)


def test_an_exception_leaves_the_old_pair_and_no_trace(tmp_path: Path) -> None:
    write(tmp_path / "p", "<u2", [[[1]]])
    with suppress(KeyError), IndexedWriter(tmp_path / "p", "<u2") as writer:
        writer.add_document([2])
        raise KeyError("a bad line")
    assert IndexedDataset(tmp_path / "p")[0].tolist() == [1]
    assert names(tmp_path) == ["p.bin", "p.idx"]


def test_both_halves_are_on_the_disk_before_they_get_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At no moment does an old index stand beside new tokens."""
    calls: list[tuple[str, str]] = []
    fsync, replace, unlink = os.fsync, Path.replace, Path.unlink

    def on_fsync(handle: int) -> None:
        fsync(handle)
        calls.append(("fsync", Path(f"/proc/self/fd/{handle}").readlink().name))

    def on_replace(old: Path, new: Path) -> Path:
        calls.append(("name", new.name))
        return replace(old, new)

    def on_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix != ".tmp":
            calls.append(("remove", path.name))
        unlink(path, missing_ok=missing_ok)

    with IndexedWriter(tmp_path / "p", np.uint16) as writer:
        writer.add_document([1, 2])
        monkeypatch.setattr(os, "fsync", on_fsync)
        monkeypatch.setattr(Path, "replace", on_replace)
        monkeypatch.setattr(Path, "unlink", on_unlink)
    flushed, named = calls[:2], calls[2:]
    temporary = [f"p.{half}.{os.getpid()}.tmp" for half in ("bin", "idx")]
    assert sorted(flushed) == [("fsync", name) for name in temporary]
    in_order = [("remove", "p.idx"), ("name", "p.bin"), ("name", "p.idx"), ("fsync", tmp_path.name)]
    assert named == in_order


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnwritablePath, match=r"missing.*No such file"):
        IndexedWriter(tmp_path / "missing" / "p", "<u2")


@pytest.mark.parametrize("tokens", [1, 1_000_000])
def test_a_full_disk_is_named_and_leaves_no_trace(tokens: int) -> None:
    # /dev/full takes a write and answers ENOSPC: the real error, without a real full disk.
    folder = Path("/dev/shm") / f"relkit-test-{os.getpid()}"
    folder.mkdir()
    try:
        writer = IndexedWriter(folder / "p", "<u2")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, writer._bin.fileno())
        os.close(full)
        with pytest.raises(UnwritablePath, match="No space left"), writer:
            writer.add_document(np.zeros(tokens, np.uint16))
        assert not names(folder)
    finally:
        folder.rmdir()


def test_what_does_not_fit_together_is_the_callers_mistake(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "p", "<u2") as writer:
        with pytest.raises(ValueError, match="cannot be"):
            writer.add_document([1, 2, 3], [1, 1])
        with pytest.raises(ValueError, match="do not cover"):
            writer.add_encoded(b"\0\0", np.array([1], np.int32), np.array([2]))
        writer.add_sequence([1])
        with pytest.raises(ValueError, match="open"):
            writer.add_document([1])
    assert IndexedDataset(tmp_path / "p").num_documents == 1
    with pytest.raises(ValueError, match="cannot be kept"):
        IndexedWriter(tmp_path / "q", np.complex64)
