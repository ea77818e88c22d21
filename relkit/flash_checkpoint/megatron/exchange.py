"""Gives a rank the file that it loads where another rank has it in memory.

Of the ranks that hold the same parameters (data parallelism), Megatron has one write the file, and
all read it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from relkit.checkpoint.manifest import name_inside
from relkit.checkpoint.torch_file import read_plain_stream
from relkit.errors import BadInputFile
from relkit.flash_checkpoint.rank_group import RankGroup


def share(ranks: RankGroup, files: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """The files of this rank, and the one that it loads. Every rank must call it.

    Args:
        files: that this rank has, as plain data; wanted: the one that it loads.

    Raises:
        BadInputFile: no rank has the file that some rank loads, or a rank's answer is not one.
    """
    held, all_wanted = names_of_all(ranks, files), _names(ranks.all_gather(wanted))
    everything = dict(files)
    held_by = {name: rank for rank, names in reversed(list(enumerate(held))) for name in names}
    missing: dict[str, list[int]] = {}
    for rank, name in enumerate(all_wanted):
        if name not in held_by:
            raise BadInputFile(
                f"rank {rank} loads {name}, which no rank has in memory: the model is divided in"
                " another way than it was saved",
                next_step="Start the job again: it loads what is on disk.",
            )
        if name not in held[rank]:
            missing.setdefault(name, []).append(rank)
    for name, receivers in sorted(missing.items()):
        owner = held_by[name]
        # Of the job's own backend, tensors in host memory may not be sent.
        group = dist.new_group(sorted([owner, *receivers]), backend="gloo")
        try:
            if ranks.rank == owner:
                _send(files[name], owner, group)
            elif ranks.rank in receivers:
                everything[name] = _receive(name, owner, group)
        finally:
            dist.destroy_process_group(group)
    return everything


def names_of_all(ranks: RankGroup, files: Mapping[str, Any]) -> list[list[str]]:
    """The names of each rank's files, in the order of ranks. Every rank must call it.

    Raises:
        BadInputFile: a rank's answer is not one, or names a file outside of the checkpoint.
    """
    return [_names(answer) for answer in ranks.all_gather(sorted(files))]


def _names(answer: Any) -> list[str]:  # noqa: ANN401
    try:
        return [name_inside(name) for name in answer]
    except (ValueError, TypeError) as error:
        raise BadInputFile(f"what a rank says of its files cannot be used: {error}") from error


def _send(content: object, owner: int, group: Any) -> None:  # noqa: ANN401
    stream = io.BytesIO()
    torch.save(content, stream)
    data = torch.frombuffer(stream.getbuffer(), dtype=torch.uint8)
    dist.broadcast(torch.tensor([data.numel()]), owner, group=group)
    dist.broadcast(data, owner, group=group)


def _receive(name: str, owner: int, group: Any) -> Any:  # noqa: ANN401
    size = torch.zeros(1, dtype=torch.int64)
    dist.broadcast(size, owner, group=group)
    try:
        data = torch.empty(int(size.item()), dtype=torch.uint8)
    except RuntimeError as error:
        raise BadInputFile(
            f"rank {owner} sends {name}, and {size.item()} bytes cannot be received"
        ) from error
    dist.broadcast(data, owner, group=group)
    return read_plain_stream(io.BytesIO(data.numpy().data), Path(name))
