"""Which micro-batch a pipeline stage works on next: 1F1B, and the same with interleaved stages.

Pure: it knows neither torch nor time. `relkit.trainer.core.pipeline` carries the order out, and
tests/trainer/core/test_schedule.py proves on a simulated machine that no order can block.

Chunk c of rank r is virtual stage c * size + r, so a micro-batch travels round the ranks once a
chunk. A rank starts enough forward passes to keep the ones behind it busy, then does one forward
and one backward pass in turn, then the backward passes that are left. The order is Megatron-LM's
(Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relkit.errors import UsageProblem

Kind = Literal["F", "B"]

SENDS_UNDER_WAY = 4
"""Sends that a rank may leave unfinished. It bounds the memory of a step; that no rank then waits
for another in a ring, nor any longer than without it, is a property test (2 are enough)."""


@dataclass(frozen=True, slots=True)
class Action:
    """One pass of one micro-batch through one model chunk.

    Args:
        kind: "F" forward, "B" backward.
        micro_batch: number within the step, from 0.
        chunk: number of the model chunk on this rank, from 0.
    """

    kind: Kind
    micro_batch: int
    chunk: int


def check_schedule(size: int, micro_batches: int, virtual: int) -> None:
    """Refuse numbers of micro-batches that no order exists for.

    Raises:
        UsageProblem: no micro-batch, or interleaved stages whose rounds would not be full.
    """
    if micro_batches < 1:
        raise UsageProblem(f"a step of {micro_batches} micro-batches; it needs at least 1")
    if virtual > 1 and micro_batches % size:
        raise UsageProblem(
            f"{micro_batches} micro-batches do not divide by pipeline_model_parallel_size {size},"
            " as virtual_pipeline_model_parallel_size needs",
            next_step="Change global_batch_size (or micro_batch_num), or leave virtual stages out.",
        )


def warm_up(rank: int, size: int, micro_batches: int, virtual: int = 1) -> int:
    """Forward passes of a rank before its first backward pass, less the one right before it."""
    ahead = size - rank - 1
    if virtual > 1:
        ahead = 2 * ahead + (virtual - 1) * size
    return min(ahead, micro_batches * virtual)


def schedule(rank: int, size: int, micro_batches: int, virtual: int = 1) -> tuple[Action, ...]:
    """The passes of one pipeline rank for one step, in order.

    Args:
        rank: place in the pipeline, 0 to size - 1.
        size: ranks of the pipeline; 1 gives plain gradient accumulation.
        micro_batches: of the step, at least 1; a multiple of `size` with virtual stages.
        virtual: model chunks on each rank.

    Raises:
        UsageProblem: see `check_schedule`.
    """
    check_schedule(size, micro_batches, virtual)
    rounds = [
        range(start, min(start + size, micro_batches)) for start in range(0, micro_batches, size)
    ]
    forward = [
        Action("F", micro_batch, chunk)
        for members in rounds
        for chunk in range(virtual)
        for micro_batch in members
    ]
    backward = [
        Action("B", micro_batch, chunk)
        for members in rounds
        for chunk in reversed(range(virtual))
        for micro_batch in members
    ]
    ahead = warm_up(rank, size, micro_batches, virtual)
    in_turn = [action for pair in zip(forward[ahead:], backward, strict=False) for action in pair]
    return (*forward[:ahead], *in_turn, *backward[len(forward) - ahead :])


def forward_schedule(
    rank: int, size: int, micro_batches: int, virtual: int = 1
) -> tuple[Action, ...]:
    """The passes of one rank where only the loss is wanted."""
    return tuple(
        action for action in schedule(rank, size, micro_batches, virtual) if action.kind == "F"
    )


@dataclass(frozen=True, slots=True)
class P2PEdge:
    """A tensor's way into or out of a pass: from whom, or to whom, over which wire.

    Args:
        kind: "F" for an activation, "B" for the gradient of one.
        peer: rank in the pipeline.
        wrap: between the last rank and the first, from one chunk to another.
    """

    kind: Kind
    peer: int
    wrap: bool


def source(action: Action, rank: int, size: int, virtual: int = 1) -> P2PEdge | None:
    """Where the tensor that a pass needs comes from; None: it is there (tokens, or the loss)."""
    stage = action.chunk * size + rank
    if action.kind == "F":
        return None if stage == 0 else P2PEdge("F", (rank - 1) % size, rank == 0)
    return (
        None if stage == virtual * size - 1 else P2PEdge("B", (rank + 1) % size, rank == size - 1)
    )


def target(action: Action, rank: int, size: int, virtual: int = 1) -> P2PEdge | None:
    """Where the result of a pass goes; None: nowhere (the loss, or the gradient of tokens)."""
    stage = action.chunk * size + rank
    if action.kind == "F":
        if stage == virtual * size - 1:
            return None
        return P2PEdge("F", (rank + 1) % size, rank == size - 1)
    return None if stage == 0 else P2PEdge("B", (rank - 1) % size, rank == 0)
