"""Experts that live on other ranks: tokens travel to them and their outputs travel back."""

from __future__ import annotations

import torch
from torch import Tensor

from relkit.trainer.core.collectives import (
    all_to_all,
    copy_to_region,
    exchange,
    join,
    reduce_from_region,
    split,
)
from relkit.trainer.core.mesh import Group
from relkit.trainer.core.moe import Dispatch, MoELayer, RunExperts


def expert_dispatch(expert: Group, tensor: Group) -> Dispatch:
    """What `MoELayer.dispatch` is where experts are spread over ranks, or cut into parts.

    Expert numbers are spread in equal, contiguous blocks over the expert group. The rows that an
    expert gets are in the order of the ranks they come from, then in each rank's order.

    Args:
        expert: ranks that hold other experts of the layer.
        tensor: ranks that hold other parts of the same experts, and have the same rows.
    """

    def dispatch(rows: Tensor, counts: Tensor, run: RunExperts) -> Tensor:
        def run_parts(rows: Tensor, counts: list[int]) -> Tensor:
            return reduce_from_region(run(copy_to_region(rows, tensor), counts), tensor)

        if expert.size == 1:
            return run_parts(rows, counts.tolist())
        # [rank it goes to, expert there] becomes [rank it comes from, expert here].
        going = counts.view(expert.size, -1)
        each = [1] * expert.size
        coming = all_to_all(going, expert, each, each)
        counts_out, counts_in = going.sum(1).tolist(), coming.sum(1).tolist()
        arrived = exchange(rows, expert, counts_out, counts_in)
        order = _by_expert(coming)
        outputs = run_parts(arrived.index_select(0, order), coming.sum(0).tolist())
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        return exchange(outputs.index_select(0, back), expert, counts_in, counts_out)

    return dispatch


def _by_expert(coming: Tensor) -> Tensor:
    """Where each row is to be taken from, so that rows sorted by rank become sorted by expert.

    Args:
        coming: rows from each rank for each expert, [ranks, experts], in this order.
    """
    experts = torch.arange(coming.shape[1], device=coming.device).repeat(coming.shape[0])
    return experts.repeat_interleave(coming.flatten()).argsort(stable=True)


def show_whole_samples(moe: MoELayer, tensor: Group) -> None:
    """Let a layer of a sequence-parallel model see whole samples, in place.

    The router then chooses, and the load-balancing loss counts, exactly as one rank alone would.

    Args:
        tensor: the ranks that the sequence (dimension 1) is spread over.
    """
    moe.register_forward_pre_hook(lambda _, given: (join(given[0], tensor, 1),))
    moe.register_forward_hook(lambda _, given, output: split(output, tensor, 1))
