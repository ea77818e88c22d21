"""Where every parameter lies in megatron-core's flat buffers and in ours, rank by rank, as JSON.

    python -m tests.trainer.checkpointing.megatron_order

One process stands for each rank in turn: torch's fake backend communicates nothing.
"""

from __future__ import annotations

import itertools
import json
import warnings
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.build import build_model
from relkit.trainer.core.flat_buffer import FlatBuffer
from relkit.trainer.core.mesh import build_mesh
from relkit.trainer.core.optimizer import build_optimizer
from relkit.trainer.core.progress import Progress
from relkit.trainer.megatron import names
from tests.trainer import megatron_core
from tests.trainer.layouts import ALONE, LAYOUTS, Layout

# No bias and no norm ends where the next parameter may begin.
ODD: dict[str, Any] = {"hidden_size": 36, "ffn_hidden_size": 46}


def cases() -> list[tuple[str, Layout, str]]:
    """Every layout with every model that it takes, sharded."""
    return [
        (f"{layout.name} {model}", layout, model)
        for layout in (ALONE, *LAYOUTS)
        for model in layout.models
    ]


def configured(layout: Layout, model: str, *, odd: bool) -> TrainerConfig:
    """The configuration of a case."""
    config = replace(layout, distributed_optimizer=True).config(model)
    if odd:
        config = replace(config, model=replace(config.model, **ODD))
    return config


def ours(config: TrainerConfig) -> tuple[list[list[Any]], Any]:
    """By buffer, dense ones first: name, start and end of each parameter; and the arguments."""
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    chunks, infos = build_model(config, mesh)
    optimizer = build_optimizer(chunks, infos, config, mesh)
    local: dict[int, dict[str, str]] = {}
    for number, chunk in enumerate(chunks):
        own = [name for name, _ in chunk.named_parameters()]
        local[number] = dict(zip(own, names.parameters(chunk), strict=True))
    found = []
    for kind in (False, True):
        for buffer, (number, expert) in zip(optimizer.buffers, optimizer.places, strict=True):
            if expert is kind:
                found.append(_spans(buffer, local[number]))
    return found, names.arguments(config, mesh, Progress())


def _spans(buffer: FlatBuffer, local: dict[str, str]) -> list[Any]:
    spans = []
    for number, bucket in enumerate(buffer.layout.buckets):
        spans += [
            [number, local[span.name], span.start - bucket.start, span.end - bucket.start]
            for span in buffer.layout.spans
            if bucket.start <= span.start < bucket.end
        ]
    used = [bucket.used_end - bucket.start for bucket in buffer.layout.buckets]
    return [spans, used]


def theirs(args: Any) -> list[list[Any]]:  # noqa: ANN401
    """The same of megatron-core's."""
    megatron_core.start(args)
    wrapped = megatron_core.distributed(args, megatron_core.models(args))
    buffers = [(chunk, buffer) for chunk in wrapped for buffer in chunk.buffers]
    buffers += [(chunk, buffer) for chunk in wrapped for buffer in chunk.expert_parallel_buffers]
    found = []
    for chunk, buffer in buffers:
        called = {parameter: name for name, parameter in chunk.module.named_parameters()}
        starts = [start for start, _ in buffer.bucket_indices]
        spans = [
            [number, called[parameter], start - starts[number], end - starts[number]]
            for parameter, (start, end, number) in buffer.param_index_map.items()
        ]
        found.append([spans, [bucket.numel_unpadded for bucket in buffer.buckets]])
    return found


def main() -> None:
    """Look at every rank of every case."""
    megatron_core.on_cpu()
    seen: dict[str, Any] = {}
    for (name, layout, model), odd in itertools.product(cases(), (False, True)):
        config = configured(layout, model, odd=odd)
        ranks = []
        for rank in range(layout.ranks):
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=layout.ranks)
            mine, args = ours(config)
            ranks.append([mine, theirs(args)])
            dist.destroy_process_group()
        seen[name + " odd" * odd] = ranks
    print(json.dumps(seen))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
