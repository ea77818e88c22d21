"""Small jobs that a newcomer would call healthy, of five kinds: data-parallel, loader-bound, one
that saves to disk every few steps, one whose rank 0 logs, and a pipeline of two stages.

A job trains for so long and for so many steps, whichever takes longer, and ends at the same step on
all ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from relkit import faults
from relkit.process.process_exit import leave

KINDS = ("data-parallel", "loader", "saving", "logging", "pipeline")
WIDTH, BATCH = 256, 64
# Of the tensors in a checkpoint, elements: about 32 MB.
SAVED = 8 << 20


class Samples(Dataset[Tensor]):
    """Made by a worker, with some work for each."""

    def __init__(self, products: int) -> None:
        self._products = products
        self._left = torch.randn(WIDTH, WIDTH) / WIDTH**0.5

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, _place: int) -> Tensor:
        for _ in range(self._products):
            torch.mm(self._left, self._left)
        return torch.randn(BATCH, WIDTH)


def batches(kind: str) -> Iterator[Tensor]:
    """What the ranks train on; of the loader-bound job two worker processes make it."""
    workers = 2 if kind == "loader" else 0
    data = Samples(24 if workers else 0)
    loader: DataLoader[Any] = DataLoader(data, batch_size=None, num_workers=workers)
    return iter(loader)


def replicate(options: argparse.Namespace) -> None:
    """Data-parallel training."""
    injector = faults.from_environment()
    rank = dist.get_rank()
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))
    replica = DistributedDataParallel(model)
    until_s = time.monotonic() + options.seconds
    for step, batch in enumerate(batches(options.kind)):
        with injector.compute(step):
            for _ in range(options.passes):
                loss = replica.module(batch).square().mean()
        loss = replica(batch).square().mean()
        replica.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in replica.parameters():
                if weight.grad is not None:
                    weight.sub_(weight.grad, alpha=1e-6)
        is_over = time.monotonic() > until_s and step + 1 >= options.steps
        told = torch.tensor([loss.item(), float(is_over)])
        dist.all_reduce(told)
        if rank == 0 and options.kind == "saving" and step % options.every == options.every - 1:
            save(options.folder, step)
        if rank == 0 and options.kind == "logging":
            log(options.folder, step, replica)
        if told[1] > 0:
            break
    if rank == 0 and options.kind == "saving":
        save(options.folder, -1)
    dist.barrier()


def save(folder: Path, step: int) -> None:
    """By turns as torch does it, and by hand and down to the disk."""
    if step % 2:
        torch.save({"step": step, "weights": torch.zeros(SAVED)}, folder / "checkpoint.pt")
        return
    with (folder / "checkpoint.bin").open("wb") as stream:
        stream.write(torch.zeros(SAVED).numpy().tobytes())
        stream.flush()
        os.fsync(stream.fileno())


def log(folder: Path, step: int, model: nn.Module) -> None:
    """What rank 0 does besides: a line a step, and some norms now and then."""
    line: dict[str, object] = {"step": step, "time": time.time()}
    if step % 10 == 0:
        line["norms"] = [float(weight.norm()) for weight in model.parameters()]
    with (folder / "log.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")


def pipeline(options: argparse.Namespace) -> None:
    """Two stages of different work: the second also computes the loss."""
    rank, left = dist.get_rank(), torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    until_s = time.monotonic() + options.seconds
    values = torch.zeros(BATCH, WIDTH)
    for step in itertools.count(1):
        for _ in range(options.passes * (8 if rank == 0 else 12)):
            torch.mm(left, left)
        if rank == 0:
            is_over = time.monotonic() > until_s and step >= options.steps
            values[0, 0] = float(is_over)
            dist.send(values, 1)
            dist.recv(values, 1)
        else:
            dist.recv(values, 0)
            is_over = bool(values[0, 0] > 0)
            dist.send(torch.ones(BATCH, WIDTH), 0)
        if is_over:
            break


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="at least")
    parser.add_argument("--steps", type=int, default=40, help="at least")
    parser.add_argument("--passes", type=int, default=4, help="forward passes more in a step")
    parser.add_argument("--every", type=int, default=5, help="steps from one save to the next")
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument(
        "--first", action="store_true", help="before all else that runs here (root)"
    )
    options = parser.parse_args()
    if options.first:
        os.nice(-20)
        # A kernel with autogroups compares sessions first, and each rank has one of its own.
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("-20")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    (pipeline if options.kind == "pipeline" else replicate)(options)
    # A thread of gloo's may abort the process as its group is destroyed: not what is looked at.
    leave(0)


if __name__ == "__main__":
    main()
