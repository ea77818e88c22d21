"""A job that saves every step in memory, for launches/replica_cost.py; rank 0 prints its steps.

replica_cost_job.py FOLDER STATE_BYTES STEPS COMPUTE_S
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType


def main() -> None:
    """Train for a while."""
    folder, size_bytes, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    compute_s = float(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    parameter = torch.nn.Parameter(torch.zeros(size_bytes // 12))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    parameter.grad = torch.ones_like(parameter)
    checkpointer = DdpCheckpointer(folder)
    checkpointer.load_checkpoint()
    weights = torch.randn(384, 384)
    sum_of_all = torch.zeros(1)
    # So many products take that long where nobody else computes.
    began_s, products = time.perf_counter(), 0
    while time.perf_counter() - began_s < compute_s:
        weights @ weights
        products += 1
    count = torch.tensor([float(products)])
    dist.all_reduce(count, op=dist.ReduceOp.MIN)
    took_s = []
    for step in range(1, steps + 1):
        began_s = time.perf_counter()
        for _ in range(int(count)):
            weights @ weights
        dist.all_reduce(sum_of_all)
        optimizer.step()
        state = {"w": parameter.detach(), "optimizer": optimizer.state_dict(), "step": step}
        checkpointer.save_checkpoint(step, state, storage_type=StorageType.MEMORY)
        took_s.append(time.perf_counter() - began_s)
    checkpointer.wait_latest_checkpoint()
    if dist.get_rank() == 0:
        print(json.dumps(took_s), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
