"""A data-parallel loop that commits a checkpoint at every step, for benchmarks/launches/restart.py.

    torchrun ... restart_job.py FOLDER

Rank 0 writes the checkpoint, all wait for it, and each commit is a line in FOLDER/commits with the
host's monotonic clock. A restarted job ends after a few steps. It needs torch alone; relkit is told
of steps where it is installed, for the table of phases.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS_AFTER = 5
STEP_S = 0.05


def main() -> dist.Work | None:
    """Train, from the newest checkpoint.

    Returns:
        The last barrier, for the caller to keep. The group is destroyed with the model, when this
        function ends: by a destructor that holds the GIL and waits for gloo's thread. Where that
        thread is the last to hold a barrier, it waits for the GIL in turn, to let go of the context
        that backward() has left there (torch 2.13; see pytorch/pytorch#56297).
    """
    barrier: dist.Work | None = None
    folder = Path(sys.argv[1])
    path, begin = folder / "checkpoint.pt", 0
    # Where a node has been replaced, no restart is counted.
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) or int(path.exists())
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (folder / f"pid-{attempt}-{rank}").write_text(str(os.getpid()))
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"] + 1
    for step in range(begin, begin + STEPS_AFTER if attempt else 1 << 30):
        tell_step(step)
        time.sleep(STEP_S)
        model(torch.ones(8, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            state = {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
            }  # fmt: skip
            torch.save(state, path.with_suffix(".tmp"))
            path.with_suffix(".tmp").rename(path)
        barrier = dist.barrier(async_op=True)
        if barrier is not None:
            barrier.wait()
        if rank == 0:
            with (folder / "commits").open("a") as commits:
                commits.write(json.dumps([attempt, step, time.monotonic()]) + "\n")
    dist.destroy_process_group()
    return barrier


def tell_step(step: int) -> None:
    """To relkit, if it is there."""
    try:
        import relkit
    except ImportError:
        return
    relkit.step(step)


if __name__ == "__main__":
    last = main()
