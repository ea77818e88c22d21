"""A loop that saves each step in memory, numbers its steps, and breaks twice.

account_job.py FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

import relkit
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType

STEPS, DIES_AT, HANGS_AT = 30, 8, 16


def main() -> None:
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    checkpointer = DdpCheckpointer(sys.argv[1])
    weights = torch.zeros(1000)
    state = checkpointer.load_checkpoint()
    for step in range(state["step"] + 1 if state else 0, STEPS):
        relkit.step(step)
        if rank == 1 and (attempt, step) == (0, DIES_AT):
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 1 and (attempt, step) == (1, HANGS_AT):
            threading.Event().wait()
        dist.all_reduce(weights)
        checkpointer.save_checkpoint(
            step, {"step": step, "weights": weights}, storage_type=StorageType.MEMORY
        ).wait()
    checkpointer.close()
    # Else a thread of gloo's may need the interpreter while that ends: SIGABRT, once in many runs.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
