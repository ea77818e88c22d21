"""A DeepSpeed engine on CPUs, and what is in it. As a program, it needs nothing of relkit:

    deepspeed_engine.py STAGE FOLDER TAG

loads a checkpoint as any DeepSpeed job does ("": the one that `latest` names), and prints what each
rank has then.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.comm.torch import TorchBackend

# DeepSpeed compiles it when the first job starts: minutes, and several jobs wait for each other.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _waits(gather: Callable[..., Any]) -> Callable[..., Any]:
    """A gather that is complete when it returns.

    DeepSpeed 0.19 starts one for each parameter of a layer and waits for the last of them only.
    gloo runs two at a time, so now and then a step uses a parameter that is not complete yet, and
    two runs differ.
    """

    @functools.wraps(gather)
    def whole(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        handle = gather(*args, **options)
        if handle is not None:
            handle.wait()
        return handle

    return whole


for _name in ("all_gather", "all_gather_into_tensor"):
    setattr(TorchBackend, _name, _waits(getattr(TorchBackend, _name)))


def made(stage: int) -> Any:  # noqa: ANN401
    """The engine of a small model."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2),
        torch.nn.Linear(32, 4),
    )  # fmt: skip
    adam = {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "optimizer": adam,
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    }
    engine, *_ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config=config, dist_init_required=False
    )
    return engine


def tensors(engine: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401
    """The parameters, and the parts of the optimizer that this rank has.

    Not buffers: those on disk are rank 0's.
    """
    yield from (value for value in engine.module.parameters() if value.numel())
    optimizer = engine.optimizer
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
        yield from getattr(optimizer, name, ())
    for state in getattr(optimizer, "optimizer", optimizer).state.values():
        yield from (state[name] for name in ("exp_avg", "exp_avg_sq"))


def contents(engine: Any) -> str:  # noqa: ANN401
    """Rank and step, a checksum of all tensors, and the learning rate."""
    data = b"".join(tensor.detach().cpu().numpy().tobytes() for tensor in tensors(engine))
    rate = float(engine.get_lr()[0]).hex()
    return f"{dist.get_rank()} {engine.global_steps} {hashlib.sha256(data).hexdigest()} {rate}"


def main() -> None:
    """Load, and say what was loaded."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    engine = made(int(sys.argv[1]))
    path, client_state = engine.load_checkpoint(sys.argv[2], tag=sys.argv[3] or None)
    assert path is not None
    assert not any(name.startswith("relkit") for name in sys.modules)
    os.write(1, f"opened {contents(engine)} {client_state['seen']}\n".encode())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
