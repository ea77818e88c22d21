"""A loop that numbers its steps and saves each in memory, until a file appears.

watched_job.py FOLDER [HANGS_AT]: rank 1 waits for ever in that step.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

import relkit
from relkit.accounting.worker_notes import note_total
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType

TOTAL = 1_000_000
STEP_S = 0.05


def main() -> None:
    dist.init_process_group("gloo")
    folder, hangs_at = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else -1
    checkpointer = DdpCheckpointer(str(folder))
    weights = torch.zeros(100)
    note_total(TOTAL)
    ended = torch.zeros(1)
    step = 0
    while not ended.item():
        relkit.step(step)
        if dist.get_rank() == 1 and step == hangs_at:
            threading.Event().wait()
        ended.fill_(float((folder / "end").exists()))
        dist.all_reduce(ended)
        where = StorageType.DISK if step == 0 else StorageType.MEMORY
        saved = checkpointer.save_checkpoint(step, {"step": step, "w": weights}, storage_type=where)
        saved.wait()
        time.sleep(STEP_S)
        step += 1
    checkpointer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
