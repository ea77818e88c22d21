"""What else belongs to a step: positions, loss scale, buffers, random streams, kept aside.

The training loop goes on from them while a step's weights are still the step's: what a fault's
survivors save is of the step that was committed, whatever the loop has done since.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from relkit.megatron_adaptor.buffers import Buffers
from relkit.megatron_adaptor.holders import parts


@dataclass(frozen=True, slots=True)
class Committed:
    """Of one step.

    Args:
        iteration: its number, as Megatron counts.
        samples: consumed by then; scheduler_steps: the schedule's count of samples.
        flops: floating-point operations so far.
        scalers: states of the loss scalers, by optimizer in the chain (None: it has none).
        buffers: of the model, as `Buffers.copied` gives them.
        streams: as Megatron's `get_rng_state` has them.
    """

    iteration: int
    samples: int
    scheduler_steps: int
    flops: float
    scalers: Sequence[Any]
    buffers: Sequence[torch.Tensor]
    streams: dict[str, Any]


def taken(
    optimizer: Any,  # noqa: ANN401
    buffers: Buffers,
    *,
    iteration: int,
    samples: int,
    scheduler_steps: int,
    flops: float,
) -> Committed:
    """The state of this moment; communicates nothing."""
    scalers = [getattr(part, "grad_scaler", None) for part in parts(optimizer)]
    states = [None if s is None else copy.deepcopy(s.state_dict()) for s in scalers]
    held = buffers.copied()
    return Committed(iteration, samples, scheduler_steps, flops, states, held, _streams())


def with_streams_of_now(kept: Committed) -> Committed:
    """The same step where the next one begins: an evaluation in between may have drawn."""
    return replace(kept, streams=_streams())


def put_back(
    kept: Committed,
    args: Any,  # noqa: ANN401
    buffers: Buffers,
    optimizer: Any,  # noqa: ANN401
    scheduler: Any,  # noqa: ANN401
) -> None:
    """Have arguments, buffers, loss scalers and schedule say what they said at that step."""
    buffers.put_back(kept.buffers)
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
        "rng_tracker_states": {
            name: _alone(stream)
            for name, stream in tensor_parallel.get_cuda_rng_tracker().get_states().items()
        },
    }


def _alone(stream: Any) -> Any:  # noqa: ANN401
    """A stream that the loop does not move on: for CUDA graphs, trackers lend the generator."""
    return stream.clone_state() if isinstance(stream, torch.Generator) else stream
