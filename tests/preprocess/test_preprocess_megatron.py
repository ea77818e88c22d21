"""Megatron-core's own reader and writer: both ways, the same bytes and the same tokens."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.data.merge import merge

DOCUMENTS = [[[1, 2, 3], [4]], [[5, 6]], [], [[60000]]]


@pytest.fixture(scope="module")
def megatron() -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        # It warns of the packages for GPUs that it does without.
        warnings.simplefilter("ignore")
        from megatron.core.datasets import indexed_dataset
    return indexed_dataset


def write_ours(prefix: Path, dtype: str) -> None:
    with IndexedWriter(prefix, dtype) as writer:
        for doc in DOCUMENTS:
            writer.add_document([t for s in doc for t in s], [len(s) for s in doc])


def write_theirs(megatron: Any, prefix: Path, dtype: type[np.generic]) -> None:  # noqa: ANN401
    builder = megatron.IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for doc in DOCUMENTS:
        builder.add_document([t for s in doc for t in s], [len(s) for s in doc])
    builder.finalize(f"{prefix}.idx")


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_both_write_the_same_bytes_and_read_each_others(
    tmp_path: Path,
    megatron: Any,  # noqa: ANN401
    dtype: type[np.generic],
) -> None:
    write_ours(tmp_path / "ours", np.dtype(dtype).str)
    write_theirs(megatron, tmp_path / "theirs", dtype)
    for ending in ("bin", "idx"):
        ours = (tmp_path / f"ours.{ending}").read_bytes()
        assert ours == (tmp_path / f"theirs.{ending}").read_bytes()
    theirs_of_ours = megatron.IndexedDataset(str(tmp_path / "ours"))
    ours_of_theirs = IndexedDataset(tmp_path / "theirs")
    assert len(theirs_of_ours) == len(ours_of_theirs) == 4
    for number in range(4):
        assert theirs_of_ours[number].tolist() == ours_of_theirs[number].tolist()
    assert theirs_of_ours.document_indices.tolist() == ours_of_theirs.document_indices.tolist()
    assert theirs_of_ours.get(0, 1, 2).tolist() == ours_of_theirs.get(0, 1, 2).tolist()


@pytest.mark.long
def test_both_merge_to_the_same_bytes(tmp_path: Path, megatron: Any) -> None:  # noqa: ANN401
    prefixes = [str(tmp_path / name) for name in ("a", "b")]
    for prefix in prefixes:
        write_ours(Path(prefix), "<u2")
    merge(prefixes, str(tmp_path / "ours"))
    builder = megatron.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=np.uint16)
    for prefix in prefixes:
        builder.add_index(prefix)
    builder.finalize(str(tmp_path / "theirs.idx"))
    for ending in ("bin", "idx"):
        ours = (tmp_path / f"ours.{ending}").read_bytes()
        assert ours == (tmp_path / f"theirs.{ending}").read_bytes()
