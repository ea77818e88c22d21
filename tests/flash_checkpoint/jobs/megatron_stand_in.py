"""A stand-in for `megatron.training.checkpointing`, which is on no package index.

It has the signatures and the layout on disk of Megatron-LM's (core 0.9 and later), for a model of
one part on CPUs. Distributed checkpoints are megatron-core's own, which is installed.
Source: Megatron-LM's megatron/training/checkpointing.py; the code here is not taken from it.
"""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
from megatron.core.transformer.enums import AttnBackend

_ARGS = Namespace()


def install(**arguments: Any) -> Namespace:  # noqa: ANN401
    """Put it where Megatron-LM's is; the arguments that `get_args()` gives from now on."""
    import megatron

    if not torch.cuda.is_available():
        # megatron-core's writer waits for the GPU, and counts failures on it, whether there is one
        # or not.
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    if AttnBackend.flash.__reduce_ex__(2)[0] is getattr:
        # So Python 3.11.2 pickles it, and megatron-core refuses the file that it has written.
        AttnBackend.__reduce_ex__ = lambda self, _: (type(self), (self.value,))
    training = ModuleType("megatron.training")
    training.checkpointing = sys.modules[__name__]  # type: ignore[attr-defined]
    sys.modules["megatron.training"] = megatron.training = training
    sys.modules["megatron.training.checkpointing"] = sys.modules[__name__]
    vars(_ARGS).update(
        attention_backend=AttnBackend.flash, params_dtype=torch.float32, consumed_train_samples=0,
        finetune=False, async_save=False, data_parallel_random_init=True,
        timers=SimpleNamespace(level=0), **arguments,
    )  # fmt: skip
    return _ARGS


def get_args() -> Namespace:
    """As Megatron's."""
    return _ARGS


def get_checkpoint_tracker_filename(checkpoints_path: str) -> str:
    """As Megatron's."""
    return str(Path(checkpoints_path) / "latest_checkpointed_iteration.txt")


def _tensor_rank() -> int:
    return dist.get_rank() if _ARGS.tensor_model_parallel_size > 1 else 0


def get_checkpoint_name(
    checkpoints_path: str, iteration: int, release: bool = False, return_base_dir: bool = False
) -> str:
    """As Megatron's."""
    folder = Path(checkpoints_path) / ("release" if release else f"iter_{iteration:07d}")
    if return_base_dir:
        return str(folder)
    return str(folder / f"mp_rank_{_tensor_rank():02d}" / "model_optim_rng.pt")


def _distributed_optimizer_name(checkpoint_name: str) -> str:
    return str(Path(checkpoint_name).with_name("distrib_optim.pt"))


def _rng_state() -> list[Any]:
    own = {
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
    }
    everything: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everything, own)
    return everything


def _sharded(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Each rank has its own part along the first dimension."""
    rank, count = dist.get_rank(), dist.get_world_size()
    return {
        name: ShardedTensor.from_rank_offsets(f"{prefix}.{name}", tensor, (0, rank, count))
        for name, tensor in tensors.items()
    }


def _sharded_state(model: Any, optimizer: Any, scheduler: Any) -> dict[str, Any]:  # noqa: ANN401
    names = [name for name, _ in model.named_parameters()]
    optim = optimizer.state_dict()
    moments = {
        f"{kind}.{name}": state[kind]
        for name, state in zip(names, optim["state"].values(), strict=False)
        for kind in ("exp_avg", "exp_avg_sq")
    }
    rank, count = dist.get_rank(), dist.get_world_size()
    return {
        "args": _ARGS,
        "checkpoint_version": 3.0,
        "model": _sharded("model", model.state_dict()),
        "moments": _sharded("optimizer", moments),
        "optimizer": {
            "param_groups": optim["param_groups"],
            "steps": [float(state["step"]) for state in optim["state"].values()],
        },
        "opt_param_scheduler": scheduler.state_dict(),
        "rng_state": ShardedObject("rng_state", _rng_state(), (count,), (rank,)),
    }


def save_checkpoint(
    iteration: int,
    model: list[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    num_floating_point_operations_so_far: float,
    checkpointing_context: dict[str, Any] | None = None,
    non_persistent_ckpt: bool = False,
) -> None:
    """As Megatron's."""
    name = get_checkpoint_name(_ARGS.save, iteration, return_base_dir=_ARGS.use_dist_ckpt)
    if _ARGS.use_dist_ckpt:
        state = _sharded_state(model[0], optimizer, opt_param_scheduler)
        state |= {
            "iteration": iteration,
            "num_floating_point_operations_so_far": num_floating_point_operations_so_far,
        }
        if dist.get_rank() == 0:
            Path(name).mkdir(parents=True, exist_ok=True)
        dist.barrier()
        assert dist_checkpointing.save(state, name, content_metadata={"kept": 1}) is None
    else:
        rng_state = _rng_state()
        if dist.get_rank() == 0 or _ARGS.tensor_model_parallel_size > 1:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            if _ARGS.tensor_model_parallel_size == 1:
                # Of the distributed optimizer, which the first data-parallel rank saves and loads.
                torch.save({"iteration": iteration}, _distributed_optimizer_name(name))
            state = {
                "args": _ARGS,
                "checkpoint_version": 3.0,
                "iteration": iteration,
                "model": model[0].state_dict(),
                "optimizer": optimizer.state_dict(),
                "opt_param_scheduler": opt_param_scheduler.state_dict(),
                "rng_state": rng_state,
                "num_floating_point_operations_so_far": num_floating_point_operations_so_far,
            }
            torch.save(state, name)
    dist.barrier()
    if dist.get_rank() == 0:
        Path(get_checkpoint_tracker_filename(_ARGS.save)).write_text(str(iteration))
    dist.barrier()


def load_checkpoint(
    ddp_model: list[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    load_arg: str = "load",
    strict: bool = True,
    checkpointing_context: dict[str, Any] | None = None,
    skip_load_to_model_and_opt: bool = False,
) -> tuple[int, float]:
    """As Megatron's."""
    folder, (model,) = getattr(_ARGS, load_arg), ddp_model
    tracker = Path(get_checkpoint_tracker_filename(folder))
    if not tracker.is_file():
        return 0, 0
    iteration = int(tracker.read_text())
    base = get_checkpoint_name(folder, iteration, return_base_dir=True)
    if dist_checkpointing.check_is_distributed_checkpoint(base):
        common = dist_checkpointing.load_common_state_dict(base)
        assert common["content_metadata"] == {"kept": 1}
        _make_states(optimizer, ddp_model[0])
        template = _sharded_state(model, optimizer, opt_param_scheduler)
        for name in ("args", "checkpoint_version", "optimizer", "opt_param_scheduler"):
            del template[name]
        state = dist_checkpointing.load(template, base)
        model.load_state_dict(state["model"], strict=strict)
        _load_moments(optimizer, model, state)
    else:
        # As plain data, and what megatron-core has registered.
        state = torch.load(get_checkpoint_name(folder, iteration), map_location="cpu")
        model.load_state_dict(state["model"], strict=strict)
        optimizer.load_state_dict(state["optimizer"])
        if dist.get_rank() == 0 and _ARGS.tensor_model_parallel_size == 1:
            name = _distributed_optimizer_name(get_checkpoint_name(folder, iteration))
            assert torch.load(name) == {"iteration": iteration}
    opt_param_scheduler.load_state_dict(state["opt_param_scheduler"])
    saved: Namespace = state["args"]
    assert saved.tensor_model_parallel_size == _ARGS.tensor_model_parallel_size
    assert saved.attention_backend is AttnBackend.flash
    _ARGS.consumed_train_samples = saved.consumed_train_samples
    rng_state = state["rng_state"][dist.get_rank()]
    random.setstate(rng_state["random_rng_state"])
    np.random.set_state(rng_state["np_rng_state"])
    torch.set_rng_state(rng_state["torch_rng_state"])
    dist.barrier()
    return state["iteration"], state["num_floating_point_operations_so_far"]


def _make_states(optimizer: Any, model: Any) -> None:  # noqa: ANN401
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def _load_moments(optimizer: Any, model: Any, state: dict[str, Any]) -> None:  # noqa: ANN401
    names = [name for name, _ in model.named_parameters()]
    steps = state["optimizer"]["steps"]
    states = {
        number: {
            "step": torch.tensor(step),
            "exp_avg": state["moments"][f"exp_avg.{name}"],
            "exp_avg_sq": state["moments"][f"exp_avg_sq.{name}"],
        }
        for number, (name, step) in enumerate(zip(names, steps, strict=True))
    }
    groups = state["optimizer"]["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
