"""The loss on samples that the model does not learn from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.collectives import all_reduce
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.model import GPT
from relkit.trainer.core.pipeline import LossFunction, run_step
from relkit.trainer.data.samples import MicroBatch


def evaluate(
    chunks: Sequence[GPT],
    batches: Iterable[list[MicroBatch]],
    loss_function: LossFunction,
    mesh: Mesh,
    config: TrainerConfig,
) -> float:
    """Mean loss over some global batches, without dropout; random streams stay where they are.

    All ranks must call it.

    Args:
        batches: this rank's micro-batches of each.

    Returns:
        The same number on every rank; nan without a batch.
    """
    losses: list[Tensor] = []
    for chunk in chunks:
        chunk.eval()
    try:
        for micro_batches in batches:
            losses += run_step(
                chunks,
                micro_batches,
                loss_function,
                mesh,
                config,
                grad_scale=1.0,
                forward_only=True,
            )
    finally:
        for chunk in chunks:
            chunk.train()
    total, count = all_reduce(sum_and_count(losses, mesh), mesh.world).tolist()
    return total / count if count else float("nan")


def sum_and_count(losses: Sequence[Tensor], mesh: Mesh) -> Tensor:
    """Sum and number of this rank's losses as float64 [2]; 0 where another rank tells the same."""
    told = torch.zeros(2, dtype=torch.float64, device=mesh.device)
    if losses and mesh.is_last_stage and mesh.tensor.rank == 0:
        told[0] = torch.stack(list(losses)).double().sum()
        told[1] = len(losses)
    return told
