"""Writes a rank's part of a sharded state into a file as torch.distributed.checkpoint does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from relkit.checkpoint.iteration_folder import write_file
from relkit.checkpoint.limited_stream import LimitedStream
from relkit.checkpoint.manifest import FileRecord
from relkit.flash_checkpoint.sharded.part import DATA, MARK, contents


def part_name(rank: int) -> str:
    """Name of a rank's file, as torch.distributed.checkpoint calls it."""
    return f"__{rank}_0.distcp"


def contents_name(rank: int) -> str:
    """Name of the file that says what a rank's file consists of, until the folder is sealed."""
    return f"__{rank}_0.contents"


def write_part(
    part: Mapping[str, Any], folder: Path, rank: int, max_bytes_per_s: float = 0.0
) -> FileRecord:
    """Write a part durably, and beside it what it consists of, for `seal`.

    Args:
        part: from `take_apart`.
        folder: exists.
        max_bytes_per_s: limit on writing; 0: none.

    Raises:
        UnwritablePath: the disk is full, or the folder cannot be written.
    """
    places: dict[tuple[str, int], tuple[int, int]] = {}

    def save(out: BinaryIO) -> None:
        stream = LimitedStream(out, max_bytes_per_s)
        for name, number, value in _items(part):
            start = stream.size_bytes
            torch.save(_alone(value), cast(BinaryIO, stream))
            places[name, number] = start, stream.size_bytes - start

    record = write_file(folder, part_name(rank), save)
    told = json.dumps(contents(part, places)).encode()
    write_file(folder, contents_name(rank), lambda out: out.write(told))
    return record


def _alone(value: object) -> object:
    """A tensor with a storage of its own: torch.save writes the whole storage of a view."""
    if not isinstance(value, Tensor):
        return value
    tensor = value.detach().cpu()
    is_alone = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if is_alone else tensor.clone(memory_format=torch.contiguous_format)


def _items(part: Mapping[str, Any]) -> Iterator[tuple[str, int, object]]:
    """Name, number and content of all that this rank is to write."""
    head, data = part[MARK], part[DATA]
    for name, value in data.items():
        tensor = head["tensors"].get(name)
        if tensor is None:
            yield name, 0, value
        elif not tensor["is_replica"]:
            yield from ((name, number, shard) for number, shard in enumerate(value))
