"""The flat form of the optimizer's state, distrib_optim.pt: Megatron's distributed optimizer's.

It is made from `Optimizer.full_state` and back. It is without cuts over data-parallel ranks, and
either optimizer loads either form (`by_parameter.py` has the other).
"""

from __future__ import annotations

from typing import Any

import torch

from relkit.errors import BadInputFile
from relkit.trainer.core.optimizer import Optimizer
from relkit.trainer.megatron import parameter_states
from relkit.trainer.megatron.parameter_states import State

# Types of parameters and of the gradients that are reduced, by the type that a run computes in.
# Megatron sums fp16 gradients as they are unless it is told otherwise; both find the one state.
TYPES = {
    "float32": ((torch.float32, torch.float32),),
    "bfloat16": ((torch.bfloat16, torch.float32),),
    "float16": ((torch.float16, torch.float16), (torch.float16, torch.float32)),
}


def flat_file(optimizer: Optimizer, state: State) -> Any:  # noqa: ANN401
    """Content of distrib_optim.pt: one dict, or [dense, experts] as Megatron chains them.

    Buffers that another rank's file has are left out.
    """
    types = TYPES[optimizer.config.model.compute_dtype]
    kinds: list[Any] = []
    for expert in parameter_states.kinds(optimizer):
        buffers = [
            (buffer, content)
            for buffer, content, place in zip(
                optimizer.buffers, state["buffers"], optimizer.places, strict=True
            )
            if place[1] is expert
        ]
        numbered: dict[Any, Any] = {"buckets_coalesced": True}
        for number, (buffer, content) in enumerate(buffers):
            if content is not None:
                flat = {**content, "numel_unpadded": buffer.layout.unpadded_size}
                numbered[number] = dict.fromkeys(types, flat)
        kinds.append(numbered if len(numbered) > 1 else None)
    return kinds[0] if len(kinds) == 1 else kinds


def from_flat_file(optimizer: Optimizer, *files: Any, old: bool) -> list[Any]:  # noqa: ANN401
    """`full_state`'s "buffers" from distrib_optim.pt; of several files, the first that has one.

    Args:
        old: whether the files are in the order of relkit's first layout.

    Raises:
        BadInputFile: no file has a buffer, or one is of another size.
    """
    places = parameter_states.places(optimizer, old=old)
    kinds = sorted({expert for expert, _ in places})
    counts = dict.fromkeys(kinds, 0)
    buffers = []
    for expert, layout in places:
        number = counts[expert]
        counts[expert] += 1
        content: dict[str, Any] = {}
        for file in files:
            chained = file if isinstance(file, list) else [file]
            if not content and len(chained) == len(kinds):
                by_type = (chained[kinds.index(expert)] or {}).get(number, {})
                content = next(iter(by_type.values()), {})
        size = content.get("numel_unpadded")
        if size != layout.unpadded_size:
            raise BadInputFile(
                f"distrib_optim.pt has {'no' if size is None else size} elements of"
                f" {'expert ' * expert}buffer {number}, and the model has {layout.unpadded_size}"
            )
        buffers.append(content)
    if not old:
        return buffers
    kept = ("param", *optimizer.moments[0])
    named = {
        name: {key: content[key][start:end] for key in kept}
        for (_, layout), content in zip(places, buffers, strict=True)
        for name, start, end, _ in layout.unpadded_spans()
    }
    return parameter_states.assembled(optimizer, named)
