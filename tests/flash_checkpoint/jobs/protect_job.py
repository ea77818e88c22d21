"""A plain DistributedDataParallel loop with the two lines of `relkit.protect`.

    protect_job.py FOLDER EPOCHS KILLS

KILLS: ATTEMPT:STEP, ...: rank 1 kills itself in that attempt when it has made that step. A job that
comes to its end trains once more from the beginning without the two lines, and prints the losses of
that as those of attempt "undisturbed".
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import relkit
from tests.job_end import end_rank

SIZE, BATCH = 48, 4


class Noisy(Dataset[torch.Tensor]):
    """Each item draws from all generators."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        noise = torch.randn(16) * float(np.random.rand()) + random.random()  # noqa: S311
        return noise + index


def loop(epochs: int, *, folder: str = "") -> Iterator[tuple[int, float]]:
    """Train; the numbers and losses of the steps. With a folder, protected."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(rank)
    random.seed(rank)
    np.random.seed(rank)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2),
        torch.nn.Linear(32, 4),
    )  # fmt: skip
    model: Any = DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    data = Noisy()
    sampler: DistributedSampler[Any] | None
    sampler = DistributedSampler(data) if dist.is_initialized() else None
    loader = DataLoader(data, BATCH, sampler=sampler, shuffle=None if sampler else True)
    step = epoch = 0
    if folder:
        protection = relkit.protect(
            model=model, optimizer=optimizer, loader=loader, scheduler=schedule,
            checkpoint_dir=folder,
        )  # fmt: skip
        begun = protection.restore()
        step, epoch = begun.step, begun.epoch
    for number in range(epoch, epochs):
        if sampler is not None:
            sampler.set_epoch(number)
        for batch in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            yield step, loss.item()


def main() -> None:
    """The job."""
    folder, epochs = sys.argv[1], int(sys.argv[2])
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    kills = sys.argv[3].split(",")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name, where in ((f"attempt-{attempt}", folder), ("undisturbed", "")):
        for step, loss in loop(epochs, folder=where):
            line = f"{name} rank {dist.get_rank()} step {step} loss {loss.hex()}\n"
            os.write(1, line.encode())
            if where and dist.get_rank() == 1 and f"{attempt}:{step}" in kills:
                os.kill(os.getpid(), signal.SIGKILL)
    end_rank()


if __name__ == "__main__":
    main()
