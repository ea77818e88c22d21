"""A data-parallel job that saves every step in memory; to disk as well where DISK_EVERY says.

    python replica_job.py FOLDER STEPS [STEP_S]

Each step takes a while, so that replicas can follow. It waits at its last step for FOLDER/end.
Each rank says "rank R step S loss L" in FOLDER/losses-NODE, a line a step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from tests.job_end import end_rank

NODE = os.environ.get("RELKIT_NODE_NAME") or os.environ["SLURMD_NODENAME"]
DISK_EVERY = int(os.environ.get("DISK_EVERY", "0"))
STEP_S = float(sys.argv[3]) if len(sys.argv) > 3 else 0.1


def main() -> None:
    """Train, save at every step, resume from the newest save."""
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = torch.nn.Linear(16, 64)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checkpointer = DdpCheckpointer(folder / "ck")
    begun = 0
    if state := checkpointer.load_checkpoint():
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch"])
        begun = state["step"]
    log = (folder / f"losses-{NODE}").open("a", encoding="utf-8")
    is_over = torch.zeros(1)
    for step in range(begun + 1, steps + 1):
        if DISK_EVERY:  # on disk is rank 0's random generator alone
            torch.manual_seed(1_000_003 * rank + step)
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        # By hand: DistributedDataParallel lays its buckets out anew after the first step, and sums
        # of four numbers depend on their order.
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(dist.get_world_size())
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item().hex()}", file=log, flush=True)
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "torch": torch.get_rng_state(),
        }
        is_kept = DISK_EVERY and step % DISK_EVERY == 0
        kind = StorageType.DISK if is_kept else StorageType.MEMORY
        checkpointer.save_checkpoint(step, state, storage_type=kind)
        time.sleep(STEP_S)
        # All leave in the same turn.
        is_over.fill_((folder / "end").exists())
        dist.all_reduce(is_over)
        if is_over:
            break
    checkpointer.wait_latest_checkpoint()
    del model
    end_rank()


if __name__ == "__main__":
    main()
