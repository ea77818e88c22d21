"""AdamW, Adam and SGD over ranges of flat buffers: torch's fused kernels and what they keep."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from relkit.trainer.config.config import OptimizerConfig

# What each optimizer keeps of every element, by the names that Megatron's checkpoints use.
MOMENTS: dict[str, tuple[str, ...]] = {
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "Adam": ("exp_avg", "exp_avg_sq"),
    "SGD": ("momentum_buffer",),
    "CAME": (),
}


@dataclass(slots=True)
class FusedGroup:
    """Ranges that share a weight decay; every list has one view for each range.

    Args:
        weight_decay: of this group.
        values, gradients: of the flat buffers.
        moments: by the names in MOMENTS, one list each.
        steps: updates done, one number for each range (the kernel counts by itself).
    """

    weight_decay: float
    values: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    moments: dict[str, list[Tensor]] = field(default_factory=dict)
    steps: list[Tensor] = field(default_factory=list)

    def add(self, value: Tensor, gradient: Tensor, moments: dict[str, Tensor]) -> None:
        """One more range."""
        self.values.append(value)
        self.gradients.append(gradient)
        for name, moment in moments.items():
            self.moments.setdefault(name, []).append(moment)
        self.steps.append(torch.zeros((), device=value.device))

    def update(self, config: OptimizerConfig, learning_rate: float, divisor: float) -> None:
        """One step over every range.

        Args:
            divisor: what gradients are divided by on the way (loss scale and clipping in one).
        """
        if not self.values:
            return
        # 1 is left out, which saves writing the gradients back.
        scale = None if divisor == 1 else torch.tensor(divisor, device=self.values[0].device)
        if config.optimizer_type == "SGD":
            sgd(
                self.values,
                self.gradients,
                list(self.moments["momentum_buffer"]),
                fused=True,
                grad_scale=scale,
                weight_decay=self.weight_decay,
                momentum=config.momentum,
                lr=learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            return
        step = adamw if config.optimizer_type == "AdamW" else adam
        step(
            self.values,
            self.gradients,
            self.moments["exp_avg"],
            self.moments["exp_avg_sq"],
            [],
            self.steps,
            fused=True,
            grad_scale=scale,
            amsgrad=False,
            beta1=config.betas[0],
            beta2=config.betas[1],
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=config.eps,
            maximize=False,
        )
