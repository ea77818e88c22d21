"""What every parameter is: how it was cut, which ranks share it, how it counts in the norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One parameter of one model chunk.

    Args:
        name: in the whole model, e.g. "decoder.layers.5.mlp.linear_fc1.weight" (layers counted over
            the whole model), the same under every layout.
        full_shape: before any cut.
        dim: dimension that tensor parallelism cuts; None: every tensor rank has all of it.
        parts: equal blocks along `dim` that are cut one by one (2 for a gate and an up projection
            in one matrix), so that each rank holds its piece of every block.
        expert: belongs to an expert, and experts are spread over ranks; its gradients are reduced
            over the expert-data group.
        partial: each tensor rank has the gradient of its own tokens only (sequence parallel
            norms and biases); the gradient is summed over the tensor group.
        tied_copy: the head's copy of the word embedding on the last pipeline stage; it is not
            counted in the gradient norm, and its gradient is summed with the first stage's.
        decay: weight decay applies (neither a norm nor a bias).
    """

    name: str
    full_shape: tuple[int, ...]
    dim: int | None = None
    parts: int = 1
    expert: bool = False
    partial: bool = False
    tied_copy: bool = False
    decay: bool = True


def drawn(*shape: int, std: float = 1.0) -> Tensor:
    """A new tensor of that shape, normally distributed; on the meta device nothing is drawn.

    There, torch would import its compiler for it: 2 s of CPU in each rank before its first step.
    """
    made = torch.empty(*shape)
    return made if made.is_meta else nn.init.normal_(made, std=std)
