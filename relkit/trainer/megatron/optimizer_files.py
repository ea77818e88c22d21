"""The optimizer's state in Megatron's two forms, made from `Optimizer.full_state` and back.

The distributed optimizer's is flat, in distrib_optim.pt; the plain one's is by parameter, inside
model_optim_rng.pt. Both are without cuts over data-parallel ranks, and either can be loaded by
either optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from relkit.errors import BadInputFile
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.flat_buffer import FlatBuffer
from relkit.trainer.core.optimizer import Optimizer

FLOAT = (torch.float32, torch.float32)  # types of parameters and of gradients

State = Mapping[str, Any]


def flat_file(optimizer: Optimizer, state: State) -> Any:  # noqa: ANN401
    """Content of distrib_optim.pt: one dict, or [dense, experts] as Megatron chains them.

    Buffers that another rank's file has are left out.
    """
    kinds = []
    for expert in (False, True):
        buffers = [
            (buffer, content)
            for buffer, content, place in zip(
                optimizer.buffers, state["buffers"], optimizer.places, strict=True
            )
            if place[1] is expert
        ]
        if not buffers:
            continue
        numbered: dict[Any, Any] = {"buckets_coalesced": True}
        for number, (buffer, content) in enumerate(buffers):
            if content is not None:
                numbered[number] = {FLOAT: {**content, "numel_unpadded": buffer.unpadded_size}}
        kinds.append(numbered)
    return kinds[0] if len(kinds) == 1 else kinds


def from_flat_file(optimizer: Optimizer, *files: Any) -> list[Any]:  # noqa: ANN401
    """`full_state`'s "buffers" from distrib_optim.pt; of several files, the first that has one.

    Raises:
        BadInputFile: no file has a buffer, or one is of another size.
    """
    kinds = sorted({expert for _, expert in optimizer.places})
    counts = dict.fromkeys(kinds, 0)
    buffers = []
    for buffer, (_, expert) in zip(optimizer.buffers, optimizer.places, strict=True):
        number = counts[expert]
        counts[expert] += 1
        content = None
        for file in files:
            chained = file if isinstance(file, list) else [file]
            if content is None and len(chained) == len(kinds):
                content = chained[kinds.index(expert)].get(number, {}).get(FLOAT)
        size = None if content is None else content.get("numel_unpadded")
        if size != buffer.unpadded_size:
            raise BadInputFile(
                f"distrib_optim.pt has {'no' if size is None else size} elements of"
                f" {'expert ' * expert}buffer {number}, and the model has {buffer.unpadded_size}"
            )
        buffers.append(content)
    return buffers


def by_parameter(optimizer: Optimizer, config: TrainerConfig, state: State) -> dict[str, Any]:
    """What model_optim_rng.pt has under "optimizer": groups, step, the plain form's moments."""
    groups = _groups(optimizer, config, state["steps"])
    plain: dict[str, Any] = {"optimizer": {"param_groups": groups}}
    if config.training.use_distributed_optimizer:
        return plain
    for group in groups:
        group["params"] = []
    numbers: dict[int, dict[str, Tensor]] = {}
    for buffer, content in zip(optimizer.buffers, state["buffers"], strict=True):
        for name, start, end, shape in _unpadded_spans(buffer):
            number = len(numbers)
            moments = {} if content is None else dict(content)
            numbers[number] = {
                key: flat[start:end].view(shape) for key, flat in moments.items() if key != "param"
            }
            groups[0 if optimizer.infos[name].decay else 1]["params"].append(number)
    plain["optimizer"]["state"] = numbers
    if state["came"]:
        plain["came"] = state["came"]
    return plain


def from_by_parameter(
    optimizer: Optimizer,
    parameters: Mapping[str, Tensor],
    *saved: Mapping[int, Mapping[str, Tensor]],
) -> list[Any]:
    """`full_state`'s "buffers" from the plain form; of several files, the first that has them.

    Args:
        parameters: of all chunks, by their names in `Optimizer.infos`.

    Raises:
        BadInputFile: it is of another model or another optimizer.
    """
    buffers = []
    number = 0
    names = list(optimizer.moments[0])
    for buffer in optimizer.buffers:
        kept = ("param", *names)
        content = {key: torch.zeros(buffer.unpadded_size) for key in kept}
        for name, start, end, shape in _unpadded_spans(buffer):
            of_parameter: Mapping[str, Tensor] = next(
                (file[number] for file in saved if file.get(number)), {}
            )
            for key in names:
                moment = of_parameter.get(key)
                if moment is None or tuple(moment.shape) != shape:
                    had = "nothing" if moment is None else f"shape {tuple(moment.shape)}"
                    raise BadInputFile(
                        f"the checkpoint's {key} of {name} has {had}, and the model {shape}"
                    )
                content[key][start:end] = moment.flatten()
            content["param"][start:end] = parameters[name].flatten()
            number += 1
        buffers.append(content)
    return buffers


def _groups(optimizer: Optimizer, config: TrainerConfig, steps: int) -> list[dict[str, Any]]:
    chosen = config.optimizer
    common = {"betas": tuple(chosen.betas), "eps": chosen.eps, "step": steps}
    return [
        {
            **common,
            "wd_mult": wd_mult,
            "lr_mult": 1.0,
            "weight_decay": chosen.weight_decay * wd_mult,
        }
        for wd_mult in (1.0, 0.0)
    ]


def _unpadded_spans(buffer: FlatBuffer) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
    """Each parameter's name, its range in `FlatBuffer.unpadded`, and its shape."""
    removed = 0
    for bucket in buffer.layout.buckets:
        for span in buffer.layout.spans:
            if bucket.start <= span.start < bucket.end:
                yield span.name, span.start - removed, span.end - removed, span.shape
        removed += bucket.end - bucket.used_end
