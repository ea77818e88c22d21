"""The metadata of torch.distributed.checkpoint (DCP) for the parts of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from relkit.errors import BadInputFile


def merged(contents: Sequence[Mapping[str, Any]], file_of: Callable[[int], str] = str) -> Metadata:
    """The metadata of a state whose parts consist of these contents.

    What several ranks have is taken from the first of them.

    Args:
        contents: of each rank, as `part.contents` makes them.
        file_of: name of a rank's file.

    Raises:
        BadInputFile: the ranks have different tensors under one name.
    """
    paths: dict[str, tuple[Any, ...]] = {}
    described: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    stored: dict[MetadataIndex, _StorageInfo] = {}
    for rank, content in enumerate(contents):
        file = file_of(rank)
        for name, path in content["paths"].items():
            paths.setdefault(name, tuple(path))
        for name, place in content["values"].items():
            index = MetadataIndex(name)
            if described.setdefault(name, BytesStorageMetadata()) and index not in stored:
                stored[index] = _StorageInfo(file, *(place or (0, 0)))
        for name, tensor in content["tensors"].items():
            whole = _tensor(tensor)
            known = described.setdefault(name, whole)
            if (
                not isinstance(known, TensorStorageMetadata)
                or known.size != whole.size
                or known.properties.dtype != whole.properties.dtype
            ):
                raise BadInputFile(f"rank {rank} has another {name} than the ranks before it")
            for offsets, sizes, place in tensor["shards"]:
                index = MetadataIndex(name, offsets)
                if index not in stored:
                    chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
                    known.chunks.append(chunk)
                    stored[index] = _StorageInfo(file, *(place or (0, 0)))
    return Metadata(described, planner_data=paths, storage_data=stored, storage_meta=StorageMeta())


def _tensor(tensor: Mapping[str, Any]) -> TensorStorageMetadata:
    properties = TensorProperties(dtype=getattr(torch, tensor["dtype"]))
    return TensorStorageMetadata(properties, torch.Size(tensor["size"]), [])
