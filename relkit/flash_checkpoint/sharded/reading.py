"""What readers from memory and from disk do alike: they hand what was read to DCP's planner."""

from __future__ import annotations

import io

import torch
from torch import Tensor
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem

from relkit.errors import BadInputFile


def hand_tensor(planner: LoadPlanner, item: ReadItem, shard: Tensor) -> None:
    """Copy what an item asks for out of a shard.

    Raises:
        BadInputFile: the shard has another size than the metadata says.
    """
    target = planner.resolve_tensor(item).detach()
    try:
        wanted = narrow_tensor_by_index(shard, item.storage_offsets, item.lengths)
    except (RuntimeError, IndexError) as error:
        raise BadInputFile(f"{item.storage_index.fqn} is smaller than expected") from error
    if target.size() != wanted.size():
        raise BadInputFile(
            f"{item.storage_index.fqn} has the size {tuple(wanted.size())} here, and"
            f" {tuple(target.size())} is asked for"
        )
    target.copy_(wanted)
    planner.commit_tensor(item, target)


def hand_value(planner: LoadPlanner, item: ReadItem, value: object) -> None:
    """Hand on a plain value, in the form that a planner unpickles: written here, not read."""
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    planner.load_bytes(item, stream)
