"""Eight ranks on four hosts: pairs across two links reduce much, then all reduce a little.

The link between the last two hosts may be slow; rank 5 collects garbage. Who waits for whom is then
known beforehand, and so are the bytes of each group.
"""

from __future__ import annotations

import gc
import sys
from itertools import count

import torch
import torch.distributed as dist

import relkit

PAIRS = ((0, 2), (1, 3), (4, 6), (5, 7))
COLLECTOR = 5
PAIR_BYTES, WORLD_BYTES = 512 << 10, 4 << 10


def main() -> None:
    """Step until somebody ends it."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {pair: dist.new_group(list(pair)) for pair in PAIRS}
    mine = next(group for pair, group in groups.items() if rank in pair)
    litter = [[n] for n in range(300_000)] if rank == COLLECTOR else []
    much, little = torch.ones(PAIR_BYTES // 4), torch.ones(WORLD_BYTES // 4)
    norm = torch.ones(1)
    for step in count():
        relkit.step(step)
        dist.all_reduce(much, group=mine)
        dist.all_reduce(little)
        # As the norm of gradients: all have just met, so it says much about their clocks.
        dist.all_reduce(norm)
        if litter and step % 2 == 0:
            gc.collect()
        if step == 5 and rank == 0:
            sys.stdout.write("steps\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
