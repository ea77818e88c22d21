"""Compares the copies of optimizer shards: what differs is silent corruption of memory.

All data-parallel ranks hold all weights, and the keepers of a shard hold its moments. Whoever
differs from a majority is wrong; where two are of two minds, both are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from relkit.trainer.core.collectives import all_gather
from relkit.trainer.core.optimizer import Optimizer

_CHUNK = 1 << 20
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, as a signed number
_ABSENT = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """Copies that are not equal.

    Args:
        what: "param" or a moment's name; buffer: of the optimizer; shard: of the buffer.
        ranks: global ranks that hold it.
        wrong: those that a majority outvotes; empty where there is none.
    """

    what: str
    buffer: int
    shard: int
    ranks: tuple[int, ...]
    wrong: tuple[int, ...]

    def __str__(self) -> str:
        held = ", ".join(map(str, self.ranks))
        sentence = f"{self.what} of shard {self.shard} in buffer {self.buffer} differs"
        if self.wrong:
            wrong = ", ".join(map(str, self.wrong))
            return f"{sentence} on rank {wrong} from the other copies (ranks {held})"
        return f"{sentence} between ranks {held}, and no third copy says which one is wrong"


def fingerprint(tensor: Tensor) -> int:
    """A number of 64 bits; tensors that differ in one element never have the same.

    Args:
        tensor: fp32, of one dimension.
    """
    bits = tensor.view(torch.int32)
    length = min(_CHUNK, bits.numel())
    # Odd weights: a change of one element is a multiple of none of 2^64's factors.
    weights = (torch.arange(length, device=bits.device) * 2 + 1) * _FACTOR
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, bits.numel(), _CHUNK):
        chunk = bits[start : start + _CHUNK].long()
        total = total * _FACTOR + (chunk * weights[: chunk.numel()]).sum()
    return int(total)


def audit(optimizer: Optimizer) -> list[Difference]:
    """Compare all copies; every rank must call it, when weights are gathered.

    Returns:
        What differs in this rank's groups.
    """
    differences = []
    for number, buffer in enumerate(optimizer.buffers):
        group, shards = buffer.reduce_group, buffer.shard_group.size
        names = ("param", *optimizer.moments[number])
        table = torch.zeros(shards, len(names), dtype=torch.int64)
        own = {buffer.shard_group.rank, *buffer.copies}
        for shard in range(shards):
            parts = [bucket.shard(shard, shards) for bucket in buffer.layout.buckets]
            held = optimizer.shard(number, shard) if shard in own else {}
            held["param"] = [buffer.parameters[part] for part in parts]
            for place, name in enumerate(names):
                if name in held:
                    table[shard, place] = fingerprint(torch.cat(held[name])) or 1
        tables = all_gather(table.to(buffer.parameters.device)[None], group, 0).cpu()
        for shard in range(shards):
            for place, name in enumerate(names):
                column = tables[:, shard, place].tolist()
                told = dict(zip(group.ranks, column, strict=True))
                said = {rank: mark for rank, mark in told.items() if mark != _ABSENT}
                if len(set(said.values())) > 1:
                    differences.append(
                        Difference(name, number, shard, tuple(said), _outvoted(said))
                    )
    return differences


def _outvoted(said: Mapping[int, int]) -> tuple[int, ...]:
    mark, votes = Counter(said.values()).most_common(1)[0]
    if 2 * votes <= len(said):
        return ()
    return tuple(rank for rank, theirs in said.items() if theirs != mark)
