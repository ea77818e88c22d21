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

from relkit.checkpoint.torch_file import read_plain_stream
from relkit.errors import BadInputFile
from relkit.flash_checkpoint.rank_group import RankGroup


def share(ranks: RankGroup, files: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """The files of this rank, and the one that it loads. Every rank must call it.

    Args:
        files: that this rank has, as plain data; wanted: the one that it loads.

    Raises:
        BadInputFile: no rank has the file that some rank loads.
    """
    offers = ranks.all_gather({"held": sorted(files), "wanted": wanted})
    everything = dict(files)
    held_by = {
        name: rank for rank, offer in reversed(list(enumerate(offers))) for name in offer["held"]
    }
    missing: dict[str, list[int]] = {}
    for rank, offer in enumerate(offers):
        if offer["wanted"] not in held_by:
            raise BadInputFile(
                f"rank {rank} loads {offer['wanted']}, which no rank has in memory: the model is"
                " divided in another way than it was saved",
                next_step="Start the job anew: it loads what is on disk.",
            )
        if offer["wanted"] not in offer["held"]:
            missing.setdefault(offer["wanted"], []).append(rank)
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


def names_of_all(ranks: RankGroup, files: Mapping[str, Any]) -> list[str]:
    """The files of all ranks, by name. Every rank must call it."""
    return sorted({name for names in ranks.all_gather(sorted(files)) for name in names})


def _send(content: object, owner: int, group: Any) -> None:  # noqa: ANN401
    stream = io.BytesIO()
    torch.save(content, stream)
    data = torch.frombuffer(stream.getbuffer(), dtype=torch.uint8)
    dist.broadcast(torch.tensor([data.numel()]), owner, group=group)
    dist.broadcast(data, owner, group=group)


def _receive(name: str, owner: int, group: Any) -> Any:  # noqa: ANN401
    size = torch.zeros(1, dtype=torch.int64)
    dist.broadcast(size, owner, group=group)
    data = torch.empty(int(size.item()), dtype=torch.uint8)
    dist.broadcast(data, owner, group=group)
    return read_plain_stream(io.BytesIO(data.numpy().data), Path(name))
