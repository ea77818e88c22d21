"""The part of a sharded state that one rank has, as plain data: what is kept in its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

# The key that makes a state a sharded one, and the key of its data.
MARK = "relkit.sharded/1"
DATA = "data"
# Where in a rank's file a shard or a value is: name and number -> offset and length, bytes.
Places = Mapping[tuple[str, int], Sequence[int]]


def is_sharded(state: object) -> bool:
    """Whether a state is one of `take_apart`."""
    return isinstance(state, dict) and MARK in state and DATA in state


def contents(part: Mapping[str, Any], places: Places | None = None) -> dict[str, Any]:
    """What a rank's part consists of, without its data, as JSON's types.

    Args:
        part: from `take_apart`.
        places: where in the rank's file each shard or value is (its name and number -> offset and
            length, bytes); None: it is in memory, all of it.
    """
    head, data = part[MARK], part[DATA]
    tensors, values = {}, {}
    for name, value in data.items():
        tensor = head["tensors"].get(name)
        if tensor is None:
            values[name] = None if places is None else list(places[name, 0])
            continue
        shards = [
            [offsets, list(shard.shape), None if places is None else list(places[name, number])]
            for number, (offsets, shard) in enumerate(zip(tensor["offsets"], value, strict=True))
            if places is None or (name, number) in places
        ]
        dtype = str(tensor["dtype"]).removeprefix("torch.")
        tensors[name] = {"size": tensor["size"], "dtype": dtype, "shards": shards}
    return {"paths": head["paths"], "tensors": tensors, "values": values}


def shards(part: Mapping[str, Any]) -> Mapping[tuple[str, tuple[int, ...]], Tensor]:
    """The tensors of a part, by name and offsets."""
    head, data = part[MARK], part[DATA]
    return {
        (name, tuple(offsets)): shard
        for name, tensor in head["tensors"].items()
        for offsets, shard in zip(tensor["offsets"], data[name], strict=True)
    }
