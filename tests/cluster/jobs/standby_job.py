"""A small job that trains, says what it computes, and is killed at a step.

    python standby_job.py FOLDER [--steps N] [--kill-at STEP] [--go FILE] [--exit CODE]

Rank 1 of the first attempt kills itself at that step, once there is the file. Each rank adds a line
to FOLDER/rank-R.jsonl at its start and for each step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import relkit
from relkit.process.process_exit import leave


class Squares(Dataset[torch.Tensor]):
    """Samples that a loader's process makes, which gets this class by its name in `__main__`."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index * index)])


def say(folder: Path, **facts: object) -> None:
    """Add a line of this rank's."""
    with (folder / f"rank-{os.environ['RANK']}.jsonl").open("a") as stream:
        stream.write(json.dumps(facts) + "\n")


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--kill-at", type=int, default=-1)
    parser.add_argument("--go", type=Path)
    parser.add_argument("--exit", type=int, default=0)
    options = parser.parse_args()
    # It sets a variable: what is imported after it is not imported ahead.
    import standby_job_imports  # type: ignore[import-not-found]

    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    say(options.folder, pid=os.getpid(), attempt=attempt, imported=standby_job_imports.TIMES)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Squares(), num_workers=1, multiprocessing_context="spawn")
    plain = torch.tensor([[float(n * n)] for n in range(8)])
    inputs = torch.cat(list(loader)) if attempt else plain
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(options.steps):
        relkit.step(step)
        if step == options.kill_at and not attempt:
            # All leave in the same turn: who saw the file later would wait for the others for ever.
            seen = torch.zeros(1)
            while not seen:
                time.sleep(0.05)
                seen.fill_(options.go.exists())
                dist.all_reduce(seen)
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        loss = (model(inputs / 49.0) - rank).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        say(options.folder, attempt=attempt, step=step, loss=loss.item().hex())
    dist.destroy_process_group()
    # Not `sys.exit`: a thread of gloo's that drops a gradient meanwhile would abort the process now
    # and then (pytorch/pytorch#179291).
    leave(options.exit if attempt or options.kill_at < 0 else 0)


if __name__ == "__main__":
    main()
