"""Trains until its time is up, and stalls in every way in which a healthy job does.

usage: stalling_job.py FOLDER SECONDS SEED

Four ranks on gloo. The model is compiled (torch.compile) after the first collective, and again for
the other batch of the evaluation; one rank compiles more than the others. Every 40 s or so there
is, at random: an evaluation of unequal length, a checkpoint that rank 0 writes while the others
wait, or a pause of one rank, asleep or in a loop of its own, of 12 to 100 s. Each stall of a rank
is a line of FOLDER/stalls-RANK.jsonl: what, and from when to when (Unix time, s).
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

PAUSE_S, EVALUATION_S, CHECKPOINT_S = (12.0, 100.0), (2.0, 30.0), (2.0, 40.0)
BETWEEN_S = (25.0, 55.0)
WIDTH, BATCH, EVALUATION_BATCH = 64, 16, 24
STEP_S = 0.05


class Stalls:
    """Notes what holds this rank up."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = folder / f"stalls-{rank}.jsonl"

    @contextmanager
    def stall(self, what: str) -> Iterator[None]:
        """Around it."""
        begin_s = time.time()
        yield
        line = {"what": what, "begin_unix_s": begin_s, "end_unix_s": time.time()}
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def spin(duration_s: float) -> None:
    """Use a core, in this file."""
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        pass


def reduce(model: nn.Module) -> None:
    """Average the gradients over all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def main() -> None:
    """Run the job."""
    folder, end_s = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    stalls = Stalls(folder, rank)
    # All ranks draw the same plan.
    plan = random.Random(int(sys.argv[3]))  # noqa: S311
    plain = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    for parameter in plain.parameters():
        dist.broadcast(parameter.detach(), 0)
    with stalls.stall("compile"):
        model = torch.compile(plain, dynamic=False)
        model(torch.ones(BATCH, WIDTH)).sum().backward()
        if rank == 1:
            torch.compile(lambda x: torch.tanh(x @ x.T).sum(), dynamic=False)(torch.ones(9, WIDTH))
    next_s = time.monotonic() + plan.uniform(*BETWEEN_S)
    verdict = torch.zeros(2)
    while True:
        time.sleep(STEP_S)
        loss = model(torch.randn(BATCH, WIDTH)).square().mean()
        loss.backward()
        reduce(plain)
        # Rank 0 decides for all: its clock is not theirs.
        now_s = time.monotonic()
        verdict[:] = torch.tensor([now_s >= end_s, now_s >= next_s])
        dist.broadcast(verdict, 0)
        if verdict[0]:
            break
        if verdict[1]:
            stalled(plan, stalls, rank, size, model, folder)
            next_s = time.monotonic() + plan.uniform(*BETWEEN_S)
    dist.destroy_process_group()


def stalled(
    plan: random.Random,
    stalls: Stalls,
    rank: int,
    size: int,
    model: Callable[[torch.Tensor], torch.Tensor],
    folder: Path,
) -> None:
    """One of the three, the same on all ranks."""
    what = plan.choice(("pause", "pause", "evaluation", "checkpoint"))
    lengths_s = [plan.uniform(*EVALUATION_S) for _ in range(size)]
    writing_s, pause_s = plan.uniform(*CHECKPOINT_S), plan.uniform(*PAUSE_S)
    who, asleep = plan.randrange(size), plan.random() < 0.7
    if what == "evaluation":
        with stalls.stall(what):
            end_s = time.monotonic() + lengths_s[rank]
            with torch.no_grad():
                while time.monotonic() < end_s:
                    model(torch.randn(EVALUATION_BATCH, WIDTH))
                    time.sleep(STEP_S)
        dist.all_reduce(torch.ones(3))
    elif what == "checkpoint":
        if rank == 0:
            with stalls.stall(what):
                write_slowly(folder / "checkpoint", writing_s)
        dist.barrier()
    elif rank == who:
        with stalls.stall("sleep" if asleep else "loop"):
            time.sleep(pause_s) if asleep else spin(pause_s)


def write_slowly(path: Path, duration_s: float) -> None:
    """As a busy file system would: a piece, and its fsync, every tenth of a second."""
    end_s = time.monotonic() + duration_s
    with path.open("wb") as stream:
        while time.monotonic() < end_s:
            stream.write(bytes(1 << 16))
            stream.flush()
            os.fsync(stream.fileno())
            time.sleep(0.1)


if __name__ == "__main__":
    main()
