"""A Megatron job that saves and loads with the code of DLRover's guide.

    megatron_job.py KIND FOLDER STEPS EVERY_DISK DEEDS

KIND: dp (both ranks have the same parameters), tp (each has its own) or dist (megatron-core's
distributed checkpoints). DEEDS: as in ddp_job.py; and ATTEMPT:RANK:0:forget: when launchers have
written a step to disk, that rank loses what it has in memory. Megatron's training loop is a
stand-in. A job that comes to its end trains once more from the beginning and saves nothing:
"undisturbed".
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from relkit.checkpoint import iteration_folder
from relkit.flash_checkpoint.megatron import StorageType
from relkit.flash_checkpoint.megatron_dist_ckpt import load_checkpoint, save_checkpoint
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.slots import slot_folder
from tests.flash_checkpoint.jobs import megatron_stand_in
from tests.flash_checkpoint.jobs.ddp_job import do
from tests.waiting import eventually


def made(kind: str) -> tuple[list[Any], torch.optim.Optimizer, Any]:
    """The model, its optimizer and its schedule."""
    rank = dist.get_rank()
    torch.manual_seed(7 if kind == "dp" else 7 + rank)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    torch.manual_seed(70 + rank)  # drawn from at every step, by batches and dropout
    return [net], optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)


def train(kind: str, step: int, model: list[Any], optimizer: Any, schedule: Any, name: str) -> None:  # noqa: ANN401
    """One step."""
    rank = dist.get_rank()
    loss = model[0](torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if kind == "dp":
        for parameter in model[0].parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    schedule.step()
    os.write(1, f"{name} {kind} rank {rank} step {step} loss {loss.item().hex()}\n".encode())


def save(
    args: Any,  # noqa: ANN401
    iteration: int,
    model: list[Any],
    optimizer: torch.optim.Optimizer,
    opt_param_scheduler: Any,  # noqa: ANN401
    save_memory_interval: int,
) -> SaveHandle | None:
    """The guide's: only the order of its arguments is one that Python takes."""
    saved = None
    # fmt: off
    if args.save and iteration % save_memory_interval == 0:
        saved = save_checkpoint(iteration, model, optimizer,
            opt_param_scheduler, num_floating_point_operations_so_far=0,
            storage_type=StorageType.MEMORY,)
    # fmt: on
    return saved


def forget(folder: Path, rank: int) -> None:
    """Remove the slots of a rank when launchers have written what was in them."""
    tracker = folder / LAUNCHERS_FOLDER / iteration_folder.TRACKER
    eventually(tracker.exists, lambda: f"no {tracker}", 60.0)
    launchers = slot_folder.of_launcher()
    assert launchers is not None
    slot_folder.slots_path(launchers, rank).unlink()


def main() -> None:
    """Train, save at every step, resume from the newest save."""
    warnings.simplefilter("ignore")
    kind, folder, steps, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    deeds = [deed.split(":") for deed in sys.argv[5].split(",")] if len(sys.argv) > 5 else []
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    args = megatron_stand_in.install(
        save=folder, load=folder, use_dist_ckpt=kind == "dist", iteration=0,
        ckpt_format="torch_dist" if kind == "dist" else "torch",
        tensor_model_parallel_size=1 if kind == "dp" else 2,
    )  # fmt: skip
    model, optimizer, opt_param_scheduler = made(kind)
    if [attempt, str(rank), "0", "forget"] in deeds:
        forget(Path(folder), rank)
    args.iteration, _ = load_checkpoint(model, optimizer, opt_param_scheduler)
    assert args.consumed_train_samples == 8 * args.iteration
    for step in range(args.iteration + 1, steps + 1):
        train(kind, step, model, optimizer, opt_param_scheduler, f"attempt-{attempt}")
        args.consumed_train_samples += 8
        saved = save(args, step, model, optimizer, opt_param_scheduler, 1)
        for deed in deeds:
            if deed[:3] == [attempt, str(rank), str(step)]:
                assert saved is not None
                do(*deed[3:], save=saved)
        if step % every == 0:
            save_checkpoint(step, model, optimizer, opt_param_scheduler, 5.0 * step).wait()
    dist.barrier()
    model, optimizer, opt_param_scheduler = made(kind)
    for step in range(1, steps + 1):
        train(kind, step, model, optimizer, opt_param_scheduler, "undisturbed")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
