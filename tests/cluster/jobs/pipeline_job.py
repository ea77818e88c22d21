"""A pipeline of one stage a rank, under gloo, in which rank 1 goes wrong in step 4.

Each step: activations go down the stages and gradients up, micro-batch by micro-batch; neighbours
in a ring exchange a batch; then all ranks add up a loss.

usage: pipeline_job.py collective|send|swap|batch
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

STEPS, BAD_STEP, BAD_RANK, MICRO_BATCHES = 100_000, 4, 1, 2


def exchange(rank: int, size: int, *, without_send: bool) -> None:
    """Give a tensor to the next rank of a ring, and take one from the rank before."""
    send = dist.P2POp(dist.isend, torch.ones(64), (rank + 1) % size)
    receive = dist.P2POp(dist.irecv, torch.ones(64), (rank - 1) % size)
    for work in dist.batch_isend_irecv([receive] if without_send else [send, receive]):
        work.wait()


def train(step: int, fault: str, rank: int, size: int) -> None:
    """One step; what goes wrong does so in the last micro-batch."""
    hidden = torch.ones(256)
    for micro_batch in range(MICRO_BATCHES):
        odd = fault if (rank, step, micro_batch) == (BAD_RANK, BAD_STEP, MICRO_BATCHES - 1) else ""
        if rank > 0:
            if odd == "swap":
                dist.send(hidden, rank - 1)
            dist.recv(hidden, rank - 1)
        if rank < size - 1:
            if odd != "send":
                dist.send(hidden, rank + 1)
            dist.recv(hidden, rank + 1)
        if rank > 0:
            dist.send(hidden, rank - 1)
    is_bad = (rank, step) == (BAD_RANK, BAD_STEP)
    exchange(rank, size, without_send=is_bad and fault == "batch")
    if not (is_bad and fault == "collective"):
        dist.all_reduce(torch.ones(1))


def main() -> None:
    """Run the job."""
    dist.init_process_group("gloo")
    for step in range(STEPS):
        train(step, sys.argv[1], dist.get_rank(), dist.get_world_size())


if __name__ == "__main__":
    main()
