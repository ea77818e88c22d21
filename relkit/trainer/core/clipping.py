"""The norm of a gradient that is spread over all ranks, and what clipping makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from relkit.trainer.config.config import TrainingConfig
from relkit.trainer.core.mesh import Mesh

# torch adds squares up in float32: over a million elements it is wrong by 1e-5, over these by 1e-9.
ROW = 1 << 10


@dataclass(frozen=True, slots=True)
class StepFacts:
    """All that an update needs besides its gradients; equal on every rank.

    Args:
        grad_norm: of the whole model's gradient, without loss scale, before clipping.
        finite: whether every gradient is; if not, the update leaves everything as it is.
        clip_coefficient: factor that clipping by norm gives every gradient, at most 1.
        loss_scale: what the gradients are still multiplied by.
    """

    grad_norm: float
    finite: bool
    clip_coefficient: float
    loss_scale: float


def step_facts(
    counted: Iterable[Tensor], mesh: Mesh, config: TrainingConfig, loss_scale: float
) -> StepFacts:
    """Measure the gradient; one collective over the world.

    Args:
        counted: this rank's gradients; every element of the model is on exactly one rank.
        loss_scale: factor in the gradients.
    """
    # Each rank has a slot of its own and all add the slots up in one order: the norm has the same
    # bits on every rank, and whether or not the optimizer is distributed.
    slots = torch.zeros(mesh.world.size, dtype=torch.float64, device=mesh.device)
    for piece in counted:
        slots[mesh.world.rank] += _sum_of_squares(piece.flatten())
    if mesh.world.size > 1:
        dist.all_reduce(slots, group=mesh.world.process_group)
    norm = float(slots.sum().sqrt()) / loss_scale
    finite = norm < float("inf")  # False for NaN as well
    coefficient = 1.0
    if config.grad_clip_type == "ClipGlobalNorm" and config.clip_value > 0 and finite:
        coefficient = min(1.0, config.clip_value / (norm + 1e-6))
    return StepFacts(norm, finite, coefficient, loss_scale)


def _sum_of_squares(values: Tensor) -> Tensor:
    """In float64, without a copy of all values in it; a scalar on their device."""
    end = values.numel() // ROW * ROW
    norms: Tensor = torch.linalg.vector_norm(values[:end].view(-1, ROW), dim=1).double()
    rest: Tensor = torch.linalg.vector_norm(values[end:]).double()
    return norms.square().sum() + rest.square()
