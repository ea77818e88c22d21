"""A plain DistributedDataParallel script of one's own, with try-to-persist: seven lines are new.

    relkit launch --nproc-per-node 4 --max-restarts 3 examples/ddp_ttp.py --steps 100

Kill any of its processes: the others save the step, the launcher starts the job again, and the
losses go on as if nothing had happened.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from relkit.ttp.replicated import ReplicatedLoop  # new

TEXT = Path(__file__).parent / "data" / "sonnets.txt"
LENGTH = 32


def learn(options: argparse.Namespace) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    network = nn.Sequential(
        nn.Embedding(256, 64),
        nn.Flatten(),
        nn.Linear(64 * LENGTH, 128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 256),
    )
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    persist = ReplicatedLoop(model, optimizer, options.folder)  # new: loads, if there is something

    def loss_of(step: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(step * world_size + rank)
        starts = torch.randint(len(text) - LENGTH, (16,), generator=draw)
        windows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
        return functional.cross_entropy(model(windows[:, :-1]), windows[:, -1])

    persist.warm_up(lambda: loss_of(0))  # new

    def train() -> None:
        for step in persist.steps(until=options.steps):  # new
            loss = loss_of(step)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            persist.begin_update()  # new
            optimizer.step()
            persist.end_update()  # new
            print(f"rank {rank} step {step + 1} loss {float(loss.item()).hex()}", flush=True)

    persist.run(train)  # new
    if rank == 0:
        print(f"done in process {os.getpid()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--folder", default="checkpoints")
    dist.init_process_group("gloo")
    learn(parser.parse_args())
    # The model is gone by now: torch would else end the group with it, waiting for a thread of
    # gloo's and holding the GIL, which that thread may be waiting for (pytorch/pytorch#56297).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
