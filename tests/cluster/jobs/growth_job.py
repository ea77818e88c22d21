"""A loop that saves each step in memory, and goes on as long as nobody tells it to end.

    python growth_job.py FOLDER

Rank 0 adds a line to FOLDER/steps for each step: the world size and the step. Nothing is written to
disk by the loop itself; the job ends when there is FOLDER/end.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import relkit
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType


def main() -> None:
    """Train."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    checkpointer = DdpCheckpointer(str(folder / "checkpoints"))
    state = checkpointer.load_checkpoint()
    step, is_over = state["step"] + 1 if state else 0, torch.zeros(1)
    while not is_over:
        relkit.step(step)
        time.sleep(0.05)
        is_over.fill_((folder / "end").exists())
        dist.all_reduce(is_over)
        checkpointer.save_checkpoint(
            step, {"step": step, "weights": torch.zeros(1000)}, storage_type=StorageType.MEMORY
        ).wait()
        if dist.get_rank() == 0:
            with (folder / "steps").open("a") as lines:
                lines.write(json.dumps([dist.get_world_size(), step]) + "\n")
        step += 1
    checkpointer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
