"""Shards of megatron-core's distributed optimizer, brought to the rank that writes the file.

The job's own groups cannot be used after a fault; the file is what `get_parameter_state_dp_zero`
gives, which gathers over one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relkit.ttp.handlers import NotFinite, SaveRequest
from relkit.ttp.plan import GroupPlan

KEYS = ("param", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True)
class _Bucket:
    """One bucket of a gradient buffer.

    Args:
        buffer: its number; types: of parameters and gradients, the key in the file.
        ranges: of each parameter in this rank's shard.
        bucket: megatron-core's.
    """

    buffer: int
    types: Any
    ranges: Any
    bucket: Any


def _buckets(optimizer: Any) -> Iterator[_Bucket]:  # noqa: ANN401
    for number, by_type in enumerate(optimizer.gbuf_ranges):
        for types, of_buckets in by_type.items():
            for ranges, bucket in zip(of_buckets, optimizer.buffers[number].buckets, strict=True):
                yield _Bucket(number, types, ranges["param_map"], bucket)


def _shard(optimizer: Any, part: _Bucket, shards: int) -> Tensor:  # noqa: ANN401
    """This rank's part of a bucket: a row of each key."""
    flat = torch.zeros(len(KEYS), part.bucket.grad_data.numel() // shards)
    for parameter, ranges in part.ranges.items():
        held = optimizer._get_main_param_and_optimizer_states(parameter)
        place = ranges["gbuf_local"]
        for row, key in zip(flat, KEYS, strict=True):
            row[place.start : place.end].copy_(held[key].detach().cpu())
    return flat


def gathered(optimizer: Any, request: SaveRequest, plan: GroupPlan) -> dict[Any, Any] | None:  # noqa: ANN401
    """The content of distrib_optim.pt, on the writer; all holders of the group must call it.

    Its weights are the model's from then on: what the model has of other ranks' shards may be of
    the step before.

    Raises:
        NotFinite: on the writer, of what it would have to write.
    """
    shards = len(plan.holders)
    state: dict[Any, Any] = {"buckets_coalesced": True}
    filled: dict[int, int] = {}
    for tag, part in enumerate(_buckets(optimizer)):
        size, start = part.bucket.numel_unpadded, filled.get(part.buffer, 0)
        filled[part.buffer] = start + size
        for shard in range(shards):
            rows = _brought(optimizer, part, request, plan, tag * shards, shard)
            if rows is None:
                continue
            content = _content(state, optimizer, part)
            begin = shard * rows.shape[1]
            # Behind the last parameter a bucket is padded, so that it can be cut evenly.
            here = rows[:, : max(0, size - begin)]
            end = begin + here.shape[1]
            for row, key in zip(here, KEYS, strict=True):
                if not bool(torch.isfinite(row).all()):
                    raise NotFinite(f"{key} of {plan.group} is not finite")
                content[key][start + begin : start + end] = row
            part.bucket.param_data.view(-1)[begin:end].copy_(here[0])
    return state if request.rank == plan.writer else None


def _content(state: dict[Any, Any], optimizer: Any, part: _Bucket) -> dict[str, Any]:  # noqa: ANN401
    """What the file has of a bucket's buffer: made at its first bucket."""
    buffer = optimizer.buffers[part.buffer]
    content: dict[str, Any] = state.setdefault(part.buffer, {}).setdefault(part.types, {})
    if not content:
        content.update({key: torch.zeros(buffer.numel_unpadded) for key in KEYS})
        content["numel_unpadded"] = buffer.numel_unpadded
    return content


def _brought(
    optimizer: Any,  # noqa: ANN401
    part: _Bucket,
    request: SaveRequest,
    plan: GroupPlan,
    tag: int,
    shard: int,
) -> Tensor | None:
    """One shard of a bucket, on the writer; one after the other, no more are held than this one."""
    shards, holder = len(plan.holders), plan.holders[shard]
    if request.rank == holder:
        own = _shard(optimizer, part, shards)
        if holder == plan.writer:
            return own
        to = request.ranks.index(plan.writer)
        request.group.send([own], to, tag + shard).wait()
    elif request.rank == plan.writer:
        other = torch.zeros(len(KEYS), part.bucket.grad_data.numel() // shards)
        source = request.ranks.index(holder)
        request.group.recv([other], source, tag + shard).wait()
        return other
    return None
