"""A job that trains until it is told to end, and says on which nodes.

    python spare_job.py FOLDER

Each rank leaves FOLDER/NODE-PID once it has finished a step, with its rank, the world size and the
number of restarts; the job ends when there is FOLDER/end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import relkit


def main() -> None:
    """Train."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    facts = {
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        "pid": os.getpid(),
    }
    name = f"{os.environ['RELKIT_NODE_NAME']}-{os.getpid()}"
    step, is_over = 0, torch.zeros(1)
    while not is_over:
        relkit.step(step)
        time.sleep(0.05)
        # All leave in the same turn: one file system may show the file later than another.
        is_over.fill_((folder / "end").exists())
        dist.all_reduce(is_over)
        if step == 0:
            part = folder / f".{name}"
            part.write_text(json.dumps(facts))
            part.rename(folder / name)
        step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
