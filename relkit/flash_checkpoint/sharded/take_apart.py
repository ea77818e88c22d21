"""Takes out of a sharded state what this rank has of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.planner_helpers import _create_write_items
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.utils import find_state_dict_object

from relkit.flash_checkpoint.sharded.part import DATA, MARK


def take_apart(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """This rank's part of a state: nothing is copied, and no other rank is asked.

    Args:
        state_dict: nested containers of tensors, ShardedTensors, DTensors and plain values, which
            get the same names as torch.distributed.checkpoint gives them.

    Returns:
        plain containers; the tensors in them are views of the local shards.
    """
    states = {
        key: value.state_dict() if isinstance(value, Stateful) else value
        for key, value in state_dict.items()
    }
    flat, paths = flatten_state_dict(states)
    tensors: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for name, value in flat.items():
        if isinstance(value, Tensor):
            tensors[name], data[name] = _tensor(name, value)
        else:
            data[name] = value
    head = {
        "paths": {name: list(path) for name, path in paths.items()},
        "tensors": tensors,
    }
    return {MARK: head, DATA: data}


def _tensor(name: str, value: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
    # A ShardedTensor cannot be detached, and what is in it needs no gradient.
    detached = value if isinstance(value, ShardedTensor) else value.detach()
    offsets: list[list[int]] = []
    shards: list[Tensor] = []
    for item in _create_write_items(name, detached):
        assert item.tensor_data is not None
        shard = find_state_dict_object({name: detached}, item.index)
        # A rank may have nothing of a small tensor.
        if shard.numel() or not item.tensor_data.size.numel():
            offsets.append(list(item.tensor_data.chunk.offsets))
            shards.append(shard.detach())
    head = {
        "size": list(value.size()),
        "dtype": value.dtype,
        "offsets": offsets,
        "is_replica": _is_replica(value),
    }
    return head, shards


def _is_replica(value: Any) -> bool:  # noqa: ANN401
    """Whether another rank has the same shards of a DTensor, and is the one to write them."""
    mesh = getattr(value, "device_mesh", None)
    place = mesh.get_coordinate() if mesh is not None else None
    if place is None:
        return False
    return any(
        placement.is_replicate() and coordinate
        for placement, coordinate in zip(value.placements, place, strict=True)
    )
