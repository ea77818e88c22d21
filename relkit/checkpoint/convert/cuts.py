"""Weights of a whole model in the parts that tensor, pipeline and expert ranks hold, and back.

Names are megatron-core's; in a part, layers and experts count from the part's first one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relkit.errors import BadInputFile

Weights = Mapping[str, Tensor]
_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.")
_EXPERT = re.compile(r"\.mlp\.experts\.local_experts\.(\d+)\.")
_ROWS = (
    "embedding.word_embeddings.weight",
    "output_layer.weight",
    "linear_qkv.weight",
    "linear_qkv.bias",
    "linear_fc1.weight",
    "linear_fc1.bias",
)
_COLUMNS = ("linear_proj.weight", "linear_fc2.weight")


@dataclass(frozen=True, slots=True)
class Degrees:
    """How a model is cut; `virtual` is the number of chunks of a pipeline rank."""

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    expert: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Whose part it is: tensor, pipeline and expert rank, and the chunk of the pipeline rank."""

    tensor: int
    pipeline: int
    chunk: int
    expert: int


def places(degrees: Degrees) -> list[Place]:
    """Of all parts."""
    return [
        Place(tensor, pipeline, chunk, expert)
        for pipeline in range(degrees.pipeline)
        for expert in range(degrees.expert)
        for tensor in range(degrees.tensor)
        for chunk in range(degrees.virtual)
    ]


def cut(
    whole: Weights, place: Place, degrees: Degrees, *, layers: int, experts: int, gated: bool
) -> dict[str, Tensor]:
    """The part that a place holds.

    Args:
        layers, experts: of the whole; gated: whether linear_fc1 is a gate above what it lets by.

    Raises:
        BadInputFile: the degrees do not divide the model.
    """
    first, count = _layers(place, degrees, layers)
    first_expert, expert_count = _experts(place, degrees, experts)
    is_first = place.pipeline == place.chunk == 0
    is_last = first + count == layers
    part = {}
    for name, value in whole.items():
        if match := _LAYER.match(name):
            if not first <= int(match[1]) < first + count:
                continue
        elif not _at_this_end(name, is_first, is_last):
            continue
        of = _EXPERT.search(name)
        if of and not first_expert <= int(of[1]) < first_expert + expert_count:
            continue
        local = _renumbered(name, -first, -first_expert)
        part[local] = _shard(local, value, place.tensor, degrees.tensor, gated)
    if is_last and not is_first and "output_layer.weight" not in whole:
        # Tied, and on another stage: megatron-core has the embedding there once more.
        name = "embedding.word_embeddings.weight"
        part["output_layer.weight"] = _shard(name, whole[name], place.tensor, degrees.tensor, gated)
    return part


def join(
    parts: Mapping[Place, Weights], degrees: Degrees, *, layers: int, experts: int, gated: bool,
    tied: bool,
) -> dict[str, Tensor]:  # fmt: skip
    """The whole model of all parts; the same as before `cut`.

    Raises:
        BadInputFile: a layer or an expert is in none or in two of them.
    """
    whole: dict[str, Tensor] = {}
    for place in parts:
        if place.tensor:
            continue
        first, count = _layers(place, degrees, layers)
        first_expert, _ = _experts(place, degrees, experts)
        shards = [
            parts[Place(tensor, place.pipeline, place.chunk, place.expert)]
            for tensor in range(degrees.tensor)
        ]
        for local in shards[0]:
            if local.endswith("_extra_state") or (local == "output_layer.weight" and tied):
                continue
            match = _LAYER.match(local)
            if match and int(match[1]) >= count:
                raise BadInputFile(
                    f"a part has {local}, and {layers} layers in {degrees.pipeline} x"
                    f" {degrees.virtual} even stages are {count} each: not converted"
                )
            name = _renumbered(local, first, first_expert)
            if name not in whole:
                whole[name] = _joined(local, [shard[local] for shard in shards], gated)
    return whole


def _layers(place: Place, degrees: Degrees, layers: int) -> tuple[int, int]:
    stages = degrees.pipeline * degrees.virtual
    if layers % stages:
        raise BadInputFile(f"{layers} layers cannot be cut into {stages} stages of equal length")
    count = layers // stages
    return (place.chunk * degrees.pipeline + place.pipeline) * count, count


def _experts(place: Place, degrees: Degrees, experts: int) -> tuple[int, int]:
    if experts % degrees.expert:
        raise BadInputFile(f"{experts} experts cannot be cut into {degrees.expert} equal parts")
    count = experts // degrees.expert
    return place.expert * count, count


def _at_this_end(name: str, is_first: bool, is_last: bool) -> bool:
    if name.startswith("embedding."):
        return is_first
    return is_last


def _renumbered(name: str, layers: int, experts: int) -> str:
    name = _LAYER.sub(lambda match: f"decoder.layers.{int(match[1]) + layers}.", name)
    return _EXPERT.sub(lambda match: f".mlp.experts.local_experts.{int(match[1]) + experts}.", name)


def _shard(name: str, value: Tensor, rank: int, size: int, gated: bool) -> Tensor:
    if gated and name.endswith("linear_fc1.weight"):
        halves = (_piece(half, rank, size, 0, name) for half in value.chunk(2))
        return torch.cat(list(halves))
    if name.endswith(_ROWS):
        return _piece(value, rank, size, 0, name)
    if name.endswith(_COLUMNS):
        return _piece(value, rank, size, 1, name)
    return value.clone()


def _piece(value: Tensor, rank: int, size: int, dimension: int, name: str) -> Tensor:
    length = value.shape[dimension]
    if length % size:
        raise BadInputFile(f"{length} rows or columns of {name} cannot be cut into {size}")
    # Of its own: torch.save would write all that a view looks at.
    return value.narrow(dimension, rank * (length // size), length // size).clone()


def _joined(name: str, shards: Sequence[Tensor], gated: bool) -> Tensor:
    if len(shards) == 1:
        return shards[0]
    if gated and name.endswith("linear_fc1.weight"):
        halves = zip(*(shard.chunk(2) for shard in shards), strict=True)
        return torch.cat([torch.cat(half) for half in halves])
    if name.endswith(_ROWS):
        return torch.cat(list(shards))
    if name.endswith(_COLUMNS):
        return torch.cat(list(shards), dim=1)
    return shards[0]
