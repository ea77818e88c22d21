"""A stand-in for Megatron-LM's `megatron.training.checkpointing`, over megatron-core from PyPI.

Its signatures and files (--ckpt-format torch) are Megatron-LM's; the code is not taken from it.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.trainer.checkpointing.megatron_run import restore, streams, with_steps

ARGS = Namespace()


def get_args() -> Namespace:
    """As Megatron's."""
    return ARGS


def print_rank_0(text: str) -> None:
    """As Megatron's."""
    if dist.get_rank() == 0:
        sys.stdout.write(text + "\n")


def unwrap_model(model: Sequence[Any]) -> list[Any]:
    """As Megatron's."""
    unwrapped = []
    for chunk in model:
        while hasattr(chunk, "module"):
            chunk = chunk.module
        unwrapped.append(chunk)
    return unwrapped


def ensure_directory_exists(filename: str) -> None:
    """As Megatron's."""
    os.makedirs(os.path.dirname(filename), exist_ok=True)  # noqa: PTH103, PTH120  likewise


def get_checkpoint_tracker_filename(checkpoints_path: str) -> str:
    """As Megatron's."""
    return str(Path(checkpoints_path) / "latest_checkpointed_iteration.txt")


def get_checkpoint_name(
    checkpoints_path: str, iteration: int, release: bool = False, return_base_dir: bool = False
) -> str:
    """As Megatron's."""
    from megatron.core import parallel_state as here

    base = Path(checkpoints_path) / ("release" if release else f"iter_{iteration:07d}")
    if return_base_dir:
        return str(base)
    name = f"mp_rank_{here.get_tensor_model_parallel_rank():02d}"
    if here.get_pipeline_model_parallel_world_size() > 1:
        name += f"_{here.get_pipeline_model_parallel_rank():03d}"
    if here.get_expert_model_parallel_world_size() > 1:
        name += f"_{here.get_expert_model_parallel_rank():03d}"
    return str(base / name / "model_optim_rng.pt")


def generate_state_dict(
    args: Namespace,
    model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    rng_state: Any,  # noqa: ANN401
    iteration: int | None = None,
) -> dict[str, Any]:
    """As Megatron's."""
    (only,) = model
    assert args.ckpt_format == "torch"
    return {
        "args": args,
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "model": only.state_dict_for_save_checkpoint(),
        "optimizer": optimizer.state_dict(),
        "opt_param_scheduler": opt_param_scheduler.state_dict(),
        "rng_state": rng_state,
    }


def save_checkpoint(
    iteration: int,
    model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    num_floating_point_operations_so_far: float,
    checkpointing_context: dict[str, Any] | None = None,
    non_persistent_ckpt: bool = False,
    train_data_iterator: Any = None,  # noqa: ANN401
) -> None:
    """As Megatron's."""
    from megatron.core import parallel_state as here

    print_rank_0(f"saving checkpoint at iteration {iteration} to {ARGS.save}")
    name = Path(get_checkpoint_name(ARGS.save, iteration))
    if ARGS.use_distributed_optimizer:
        ensure_directory_exists(str(name))
        optimizer.save_parameter_state(str(name.with_name("distrib_optim.pt")))
    if here.get_expert_data_parallel_rank() == 0:
        ensure_directory_exists(str(name))
        state = generate_state_dict(
            ARGS, unwrap_model(model), optimizer, opt_param_scheduler, [streams()], iteration
        )
        state["num_floating_point_operations_so_far"] = num_floating_point_operations_so_far
        torch.save(state, str(name))
    dist.barrier()
    if dist.get_rank() == 0:
        Path(get_checkpoint_tracker_filename(ARGS.save)).write_text(str(iteration))
    dist.barrier()


@torch.no_grad()
def load_checkpoint(
    ddp_model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    load_arg: str = "load",
    strict: bool = True,
    checkpointing_context: dict[str, Any] | None = None,
) -> tuple[int, float]:
    """As Megatron's."""
    folder = getattr(ARGS, load_arg)
    tracker = Path(get_checkpoint_tracker_filename(folder))
    if not tracker.is_file():
        return 0, 0
    iteration = int(tracker.read_text())
    name = get_checkpoint_name(folder, iteration)
    state = torch.load(name, weights_only=False)
    unwrap_model(ddp_model)[0].load_state_dict(state["model"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    if ARGS.use_distributed_optimizer:
        with with_steps():
            optimizer.load_parameter_state(str(Path(name).with_name("distrib_optim.pt")))
        for part in optimizer.chained_optimizers:
            for held in part.optimizer.state.values():
                held["step"] = held["step"].clone()
    opt_param_scheduler.load_state_dict(state["opt_param_scheduler"])
    ARGS.consumed_train_samples = state["args"].consumed_train_samples
    restore(state["rng_state"][0])
    dist.barrier()
    return state["iteration"], state["num_floating_point_operations_so_far"]
