"""Two ranks that step for twelve seconds; then a thread keeps rank 1's interpreter from exiting.

usage: slow_exit_job.py works|waits
"""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
import torch.distributed as dist

# A job is under way once it has finished something in ten different seconds: this is how long a
# step takes, nobody waits for anything by it.
STEPS, STEP_S, SLOW_RANK, CPU_S = 48, 0.25, 1, 10.0


def work() -> None:
    """Use a CPU for some seconds."""
    while time.thread_time() < CPU_S:
        pass


def main() -> None:
    """Run the job."""
    dist.init_process_group("gloo")
    for _ in range(STEPS):
        dist.all_reduce(torch.ones(8))
        time.sleep(STEP_S)
    rank = dist.get_rank()
    if rank == SLOW_RANK:
        target = work if sys.argv[1] == "works" else threading.Event().wait
        threading.Thread(target=target, name="uploader").start()
    dist.destroy_process_group()
    if rank != SLOW_RANK:
        os._exit(0)  # gone at once, while this takes seconds on a busy machine


if __name__ == "__main__":
    main()
