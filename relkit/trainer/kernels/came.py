"""CAME: a second moment kept as its rows and columns, and steps trusted by how steady they are.

Luo et al., "CAME: Confidence-guided Adaptive Memory Efficient Optimization" (ACL 2023). It looks
at whole matrices, so it needs all of a parameter on the rank; under tensor parallelism a matrix is
the rank's own piece of it, and the steps differ in value (not in kind) from those of one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from relkit.trainer.config.config import OptimizerConfig

EPS_SQUARE = 1e-30
EPS_INSTABILITY = 1e-16
LARGEST_RMS = 1.0
THIRD_BETA = 0.9999


@dataclass(frozen=True, slots=True)
class CameParameter:
    """One parameter, its gradient, and what CAME remembers of it.

    Args:
        value, gradient: views of the flat buffers, in the parameter's shape.
        decay: whether weight decay applies.
        state: exp_avg, and either row, column, res_row and res_column (matrices) or exp_avg_sq.
    """

    value: Tensor
    gradient: Tensor
    decay: bool
    state: Mapping[str, Tensor]

    @classmethod
    def start(cls, value: Tensor, gradient: Tensor, *, decay: bool) -> CameParameter:
        """With empty memory; matrices are of two dimensions, everything else is kept whole."""
        state = {"exp_avg": torch.zeros_like(value)}
        if value.dim() == 2:
            for prefix in ("", "res_"):
                state[prefix + "row"] = value.new_zeros(value.shape[0])
                state[prefix + "column"] = value.new_zeros(value.shape[1])
        else:
            state["exp_avg_sq"] = torch.zeros_like(value)
        return cls(value, gradient, decay, state)

    def update(self, learning_rate: float, config: OptimizerConfig) -> None:
        """One step; the gradient is unscaled and clipped already."""
        first, second = config.betas[:2]
        third = config.betas[2] if len(config.betas) > 2 else THIRD_BETA
        state, gradient = self.state, self.gradient
        square = gradient.square().add_(EPS_SQUARE)
        if "row" in state:
            step = gradient * _remember(state["row"], state["column"], square, second)
        else:
            state["exp_avg_sq"].lerp_(square, 1 - second)
            step = gradient * state["exp_avg_sq"].rsqrt()
        rms = step.square().mean().sqrt()
        step /= (rms / LARGEST_RMS).clamp_(min=1.0)
        state["exp_avg"].lerp_(step, 1 - first)
        trusted = state["exp_avg"]
        if "row" in state:
            instability = (step - trusted).square_().add_(EPS_INSTABILITY)
            trusted = trusted * _remember(state["res_row"], state["res_column"], instability, third)
        if self.decay and config.weight_decay:
            self.value.mul_(1 - learning_rate * config.weight_decay)
        self.value.add_(trusted, alpha=-learning_rate)


def _remember(row: Tensor, column: Tensor, square: Tensor, beta: float) -> Tensor:
    """Mix the means of `square` in; returns 1/root of the matrix that row and column stand for."""
    row.lerp_(square.mean(dim=1), 1 - beta)
    column.lerp_(square.mean(dim=0), 1 - beta)
    return torch.outer((row / row.mean()).rsqrt_(), column.rsqrt())
