"""Ranks die in turn, each at another point of its start, until so many attempts have been made.

static_job.py RESTARTS
"""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist

_POINTS = ("in a step", "before they meet", "when they have met")


def main() -> None:
    """One attempt of a rank."""
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    ranks = int(os.environ["WORLD_SIZE"])
    is_last = attempt >= int(sys.argv[1])
    dies_at = "" if is_last or rank != attempt % ranks else _POINTS[attempt % len(_POINTS)]

    def reached(point: str) -> None:
        if point == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    # One write: print() makes two, and ranks write at once.
    sys.stdout.write(f"attempt {attempt} rank {rank} port {os.environ['MASTER_PORT']}\n")
    reached("before they meet")
    dist.init_process_group("gloo")
    reached("when they have met")
    for _ in range(2):
        total = torch.ones(4)
        dist.all_reduce(total)
        reached("in a step")
    if is_last:
        sys.stdout.write(f"rank {rank} done: {total.sum():g}\n")
    dist.destroy_process_group()


main()
