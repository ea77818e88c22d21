"""A small data-parallel job on gloo with recorded compute; on one node it takes longer."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist


def main() -> None:
    """Train for argv[1] steps, in a world of fewer ranks than argv[2] for 5 only."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    alone = dist.get_world_size() < int(sys.argv[2])
    products = 10 + int(os.environ.get("SLOW_JOB_PRODUCTS", "0"))
    weight = torch.eye(256)
    for _ in range(5 if alone else int(sys.argv[1])):
        values = torch.ones(256, 256)
        for _ in range(products):
            values = values @ weight
        dist.all_reduce(values)
        dist.all_reduce(values[0])
    # One write: print() makes two, and ranks write at once.
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} is done\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
