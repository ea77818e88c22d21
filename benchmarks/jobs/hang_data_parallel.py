"""Data-parallel training under gloo that goes wrong: DDP, a gradient norm, evaluation."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from benchmarks.jobs.hang_faults import Fault, options, stuck_worker

EVALUATE_EVERY = 2


class Samples(Dataset[Tensor]):
    """One batch a step."""

    def __init__(self, fault: Fault, rank: int, steps: int) -> None:
        self._fault, self._rank, self._steps = fault, rank, steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Tensor:
        if self._fault.here("loader", self._rank, step):
            stuck_worker()
        return torch.ones(4, 32) * (step % 7)


def clip(model: nn.Module, fault: Fault, rank: int, step: int) -> Tensor:
    """The norm of the gradients over all ranks."""
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None])
    if fault.here("size", rank, step):
        norm = norm[:-1].clone()
    if fault.here("dtype", rank, step):
        norm = norm.double()
    if fault.here("other", rank, step):
        dist.all_gather([torch.empty_like(norm) for _ in range(dist.get_world_size())], norm)
    elif not fault.here("skip", rank, step):
        dist.all_reduce(norm)
    return norm


def evaluate(fault: Fault, rank: int, step: int) -> None:
    """Accuracy of all ranks, and the next learning rate from rank 0."""
    if fault.here("extra", rank, step):
        dist.all_reduce(torch.ones(16))
    accuracy = torch.ones(6)
    dist.all_gather([torch.empty_like(accuracy) for _ in range(dist.get_world_size())], accuracy)
    if not fault.here("skip-broadcast", rank, step):
        dist.broadcast(torch.ones(2), 0)


def train(fault: Fault, steps: int, rank: int) -> None:
    """All steps."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    workers = 1 if fault.name == "loader" else 0
    samples = DataLoader(
        Samples(fault, rank, steps), batch_size=None, num_workers=workers
    )  # fmt: skip
    for step, batch in enumerate(samples):
        if fault.here("early", rank, step):
            break
        if fault.here("continue", rank, step):
            continue
        fault.on_host(rank, step)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        clip(model, fault, rank, step)
        optimizer.step()
        if step % EVALUATE_EVERY == 1:
            evaluate(fault, rank, step)


def main() -> None:
    """Run the job."""
    fault, given = options()
    dist.init_process_group("gloo")
    train(fault, given.steps, dist.get_rank())
    dist.destroy_process_group()
    # DDP keeps threads of gloo beyond that. One that drops a tensor while Python shuts down aborts
    # the process (pytorch#179291), which would be a second fault.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
