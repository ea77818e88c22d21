"""The training job of tools/soak: new loader workers every epoch, dropout, checkpoints.

    torchrun --nproc-per-node 4 tools/soak/job.py FOLDER STEPS PAUSE_S

With 0 STEPS it ends after the epoch in which FOLDER/end appears. PAUSE_S is slept in each step,
and four times as much by rank 2 in every fifth run of 100 steps: a straggler. What is computed
depends on neither.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from relkit.ttp.replicated import ReplicatedLoop

EPOCH, WORKERS, WIDTH, BATCH = 40, 2, 64, 8
_SAVE_EVERY = 100
_SLOW_RANK, _SLOW_TIMES = 2, 4


class Samples(Dataset[torch.Tensor]):
    """What is left of one rank's epoch; each batch costs a matrix product in a worker process."""

    def __init__(self, rank: int, first_step: int, last_step: int) -> None:
        self._rank, self._first, self._last = rank, first_step, last_step

    def __len__(self) -> int:
        return self._last - self._first

    def __getitem__(self, index: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(1000 * (self._first + index) + self._rank)
        batch = torch.randn(BATCH, 160, generator=draw)
        mixer = torch.randn(160, WIDTH, generator=draw)
        return batch @ mixer


def pause(step: int, rank: int, pause_s: float) -> None:
    """Leave the machine to others; be a straggler now and then."""
    slow = rank == _SLOW_RANK and step // 100 % 5 == 2
    time.sleep(pause_s * (_SLOW_TIMES if slow else 1))


def asked_to_end(folder: Path) -> bool:
    """Whether rank 0 has seen the file; all ranks agree."""
    seen = torch.tensor(int((folder / "end").exists()))
    dist.broadcast(seen, 0)
    return bool(seen)


def learn(folder: Path, until: int, pause_s: float) -> None:
    """Train until the end that the command line says."""
    rank = dist.get_rank()
    torch.manual_seed(11)
    network = nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    persist = ReplicatedLoop(model, optimizer, folder / "checkpoints")

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        return loss

    persist.warm_up(lambda: loss_of(torch.ones(BATCH, WIDTH)))
    losses = os.open(folder / f"loss-{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def batches(step: int) -> DataLoader[torch.Tensor]:
        # With a generator of its own: the default one is the model's, and a loader draws from it.
        last = (step // EPOCH + 1) * EPOCH
        return DataLoader(
            Samples(rank, step, last),
            batch_size=None,
            num_workers=WORKERS,
            generator=torch.Generator().manual_seed(step),
        )

    def train() -> None:
        loader = iter(batches(persist.step))
        for step in persist.steps(until=until or sys.maxsize):
            if step % EPOCH == 0:
                if not until and asked_to_end(folder):
                    return
                loader = iter(batches(step))
            batch = next(loader)
            pause(step, rank, pause_s)
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            # Before the step counts: one that is lost is made, and written, again.
            os.write(losses, f"{step} {float(loss.detach()).hex()}\n".encode())
            persist.begin_update()
            optimizer.step()
            persist.end_update()
            if persist.step % _SAVE_EVERY == 0:
                persist.save()

    persist.run(train)
    dist.barrier()


def main() -> None:
    """Join the job, train, leave."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    learn(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    # The model is gone by now: torch would else end the group with it, waiting for a thread of
    # gloo's and holding the GIL, which that thread may be waiting for (pytorch/pytorch#56297).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
