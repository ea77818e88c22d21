"""Optimizer shards in an emergency save: brought from whoever holds them to whoever writes a file.

The job's own groups cannot be used after a fault, and which rank holds or writes what is decided by
the plan alone; so every rank works out the same list of transfers, and makes its own of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.optimizer import Optimizer
from relkit.ttp.handlers import NotFinite, SaveRequest
from relkit.ttp.plan import SavePlan

EXPERT = " ep"


def group_name(mesh: Mesh, *, expert: bool = False) -> str:
    """The replica map's name of this rank's data-parallel (or expert-data-parallel) group."""
    name = f"tp{mesh.tensor.rank} pp{mesh.pipeline.rank}"
    return f"{name}{EXPERT}{mesh.expert.rank}" if expert else name


@dataclass(frozen=True, slots=True)
class Transfer:
    """One shard's way.

    Args:
        group: of the shard; shard: its number there.
        holder, writer: global ranks; one and the same where nothing has to travel.
        experts: whether buffers of experts, others, or (None) all of them are meant.
        moments: whether the writer needs more than the weights.
    """

    group: str
    shard: int
    holder: int
    writer: int
    experts: bool | None
    moments: bool


def transfers(plan: SavePlan) -> tuple[Transfer, ...]:
    """All transfers of an emergency save, in an order that every rank knows.

    With expert parallelism each expert place has a file of its own. All of them hold the dense
    weights, and the first one holds their optimizer state.
    """
    ordered = []
    for group in plan.groups:
        expert = EXPERT in group.group
        writers = {
            e.writer: e.group for e in plan.groups if e.group.startswith(group.group + EXPERT)
        }
        for shard, holder in enumerate(group.holders):
            if not writers:
                kind = True if expert else None
                ordered.append(Transfer(group.group, shard, holder, group.writer, kind, True))
            for writer, name in writers.items():
                first = name == f"{group.group}{EXPERT}0"
                ordered.append(Transfer(group.group, shard, holder, writer, False, first))
    return tuple(ordered)


def gathered_state(optimizer: Optimizer, request: SaveRequest) -> dict[str, Any] | None:
    """Take part in an emergency save; all of `request.ranks` must call it.

    Returns:
        On a writer what `Optimizer.full_state` gives (and the weights are those of the main
        shards from then on), else None.

    Raises:
        NotFinite: on a writer, of what it would have to write. Then nobody writes: the others get
            None.
    """
    received, refused = _received(optimizer, request), ""
    for transfer, pieces in received.items():
        for piece in pieces:
            if not refused and not bool(torch.isfinite(piece.content).all()):
                refused = f"{piece.name} of shard {transfer.shard} of group {transfer.group}"
    if _anywhere(bool(refused), request):
        if refused:
            raise NotFinite(f"{refused} is not finite")
        return None
    return _assembled(optimizer, received) if received else None


@dataclass(frozen=True, slots=True)
class Piece:
    """One bucket of a shard: its weights ("param") or one of its moments."""

    buffer: int
    name: str
    content: Tensor


def _received(optimizer: Optimizer, request: SaveRequest) -> dict[Transfer, list[Piece]]:
    """What this rank writes: its own shards, and those that are sent to it."""
    pieces: dict[Transfer, list[Piece]] = {}
    arriving: list[tuple[Transfer, Tensor]] = []
    waiting, kept = [], []
    for tag, transfer in enumerate(transfers(request.plan)):
        if transfer.holder == transfer.writer:
            if request.rank == transfer.writer:
                pieces[transfer] = _held(optimizer, transfer)
        elif request.rank == transfer.holder:
            flat = torch.cat([piece.content for piece in _held(optimizer, transfer)])
            kept.append(flat)
            to = request.ranks.index(transfer.writer)
            waiting.append(request.group.send([flat], to, tag))
        elif request.rank == transfer.writer:
            flat = torch.empty(sum(size for _, _, size in _shape(optimizer, transfer)))
            arriving.append((transfer, flat))
            source = request.ranks.index(transfer.holder)
            waiting.append(request.group.recv([flat], source, tag))
    for work in waiting:
        work.wait()
    for transfer, flat in arriving:
        pieces[transfer], start = [], 0
        for number, name, size in _shape(optimizer, transfer):
            pieces[transfer].append(Piece(number, name, flat[start : start + size]))
            start += size
    return pieces


def _buffers(optimizer: Optimizer, transfer: Transfer) -> list[int]:
    wanted = transfer.experts
    return [n for n, (_, expert) in enumerate(optimizer.places) if wanted in (None, expert)]


def _shape(optimizer: Optimizer, transfer: Transfer) -> list[tuple[int, str, int]]:
    """Buffer, name and number of elements of each piece, in the order in which they travel."""
    layout = []
    for number in _buffers(optimizer, transfer):
        names = ["param", *(optimizer.moments[number] if transfer.moments else ())]
        sizes = [part.stop - part.start for part in optimizer.buffers[number].shards]
        layout += [(number, name, size) for name in names for size in sizes]
    return layout


def _held(optimizer: Optimizer, transfer: Transfer) -> list[Piece]:
    return [
        Piece(number, name, tensor.cpu())
        for number in _buffers(optimizer, transfer)
        for name, tensors in optimizer.shard(number, transfer.shard).items()
        if name == "param" or transfer.moments
        for tensor in tensors
    ]


def _anywhere(refused: bool, request: SaveRequest) -> bool:
    count = torch.tensor([float(refused)])
    if len(request.ranks) > 1:
        request.group.allreduce([count]).wait()
    return bool(count.item())


def _assembled(
    optimizer: Optimizer, received: Mapping[Transfer, Sequence[Piece]]
) -> dict[str, Any]:
    """Put shards together; the model's weights are overwritten by what these say."""
    # By buffer and name, each shard's list of buckets.
    shards_by_name: dict[tuple[int, str], list[list[Tensor]]] = {}
    for transfer in sorted(received, key=lambda each: each.shard):
        of_shard: dict[tuple[int, str], list[Tensor]] = {}
        for piece in received[transfer]:
            of_shard.setdefault((piece.buffer, piece.name), []).append(piece.content)
        for key, buckets in of_shard.items():
            shards_by_name.setdefault(key, []).append(buckets)
    contents: list[dict[str, Tensor] | None] = []
    for number, buffer in enumerate(optimizer.buffers):
        content = {}
        for (of_buffer, name), shards in shards_by_name.items():
            if of_buffer == number:
                joined = [torch.cat(parts) for parts in zip(*shards, strict=True)]
                content[name] = buffer.unpadded(joined).cpu()
                if name == "param":
                    for bucket, weights in zip(buffer.layout.buckets, joined, strict=True):
                        buffer.parameters[bucket.start : bucket.end] = weights
        # Weights alone are for the model; another place's file has the state.
        of_file = len(content) > 1 or not optimizer.moments[number]
        contents.append(content if of_file else None)
    came = {
        name: {key: tensor.cpu().clone() for key, tensor in memory.state.items()}
        for name, memory in optimizer.came.items()
    }
    return {"steps": optimizer.steps, "buffers": contents, "came": came}
