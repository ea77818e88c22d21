"""Ranks whose data come from new worker processes every epoch, each of which multiplies matrices.

    python churn_job.py EPOCHS [GO]

Rank 0 says after each epoch how many recorder files there are, and how many bytes they take. Where
GO is named, the ranks end when there is such a file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

WORKERS = 4


class Products(Dataset[torch.Tensor]):
    """Samples that cost a matrix product each."""

    def __len__(self) -> int:
        return 8 * WORKERS

    def __getitem__(self, index: int) -> torch.Tensor:
        matrix = torch.full((160, 160), float(index % 7))
        return (matrix @ matrix)[0]


def recorder_sizes(folder: Path) -> Iterator[int]:
    """What each recorder file takes, bytes; one may be removed while they are looked at."""
    for path in folder.glob("*.rkhook"):
        with suppress(FileNotFoundError):
            yield path.stat().st_blocks * 512


def main() -> None:
    epochs = int(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path(os.environ["RELKIT_HOOK_DIR"])
    total = torch.zeros(160)
    for epoch in range(epochs):
        for batch in DataLoader(Products(), batch_size=4, num_workers=WORKERS):
            total += batch.sum(0)
        if dist.get_rank() == 0:
            sizes = list(recorder_sizes(folder))
            print(f"epoch {epoch}: {len(sizes)} files, {sum(sizes)} bytes", flush=True)
    # Not in each epoch: after a collective a thread of gloo's may ask for the GIL, and in CPython
    # before 3.12 a child that is forked at that moment may wait for ever for a lock which it held.
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"folder {folder}", flush=True)
    while len(sys.argv) > 2 and not Path(sys.argv[2]).exists():
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
