"""What else belongs to a step: positions, loss scale and random streams, small and kept aside.

The training loop goes on from them while a step's weights are still the step's: what a fault's
survivors save is of the step that was committed, whatever the loop has done since.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from relkit.megatron_adaptor.holders import parts


@dataclass(frozen=True, slots=True)
class Committed:
    """Of one step.

    Args:
        iteration: its number, as Megatron counts.
        samples: consumed by then; scheduler_steps: the schedule's count of samples.
        flops: floating-point operations so far.
        scalers: states of the loss scalers, by optimizer in the chain (None: it has none).
        streams: as Megatron's `get_rng_state` has them.
    """

    iteration: int
    samples: int
    scheduler_steps: int
    flops: float
    scalers: Sequence[Any]
    streams: dict[str, Any]


def taken(
    optimizer: Any,  # noqa: ANN401
    *,
    iteration: int,
    samples: int,
    scheduler_steps: int,
    flops: float,
) -> Committed:
    """The state of this moment; communicates nothing."""
    scalers = [getattr(part, "grad_scaler", None) for part in parts(optimizer)]
    states = [None if s is None else copy.deepcopy(s.state_dict()) for s in scalers]
    return Committed(iteration, samples, scheduler_steps, flops, states, _streams())


def put_back(kept: Committed, args: Any, optimizer: Any, scheduler: Any) -> None:  # noqa: ANN401
    """Have arguments, loss scalers and schedule say what they said at that step."""
    args.iteration, args.consumed_train_samples = kept.iteration, kept.samples
    for part, state in zip(parts(optimizer), kept.scalers, strict=True):
        if state is not None:
            part.grad_scaler.load_state_dict(state)
    scheduler.num_steps = kept.scheduler_steps
    scheduler.step(0)


def _streams() -> dict[str, Any]:
    from megatron.core import tensor_parallel

    return {
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.cuda.get_rng_state(),
        "rng_tracker_states": tensor_parallel.get_cuda_rng_tracker().get_states(),
    }
