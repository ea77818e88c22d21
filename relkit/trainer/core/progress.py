"""Where a run stands: all that a checkpoint holds besides weights and optimizer state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """The commit record of a step; replaced as a whole at each step boundary.

    Args:
        step: optimizer steps done, skipped ones included.
        consumed_train_samples, consumed_valid_samples: position in the data.
        skipped_steps: steps whose gradients were not finite.
        loss_scaler: state of the dynamic loss scale; empty without fp16.
        rng: relkit.checkpoint.rng_state.RngState as of the boundary.
        metrics: of the step (loss, grad_norm, learning_rate ...), for its log line.
    """

    step: int = 0
    consumed_train_samples: int = 0
    consumed_valid_samples: int = 0
    skipped_steps: int = 0
    loss_scaler: dict[str, float] = field(default_factory=dict)
    rng: Any = None
    metrics: dict[str, float] = field(default_factory=dict)
