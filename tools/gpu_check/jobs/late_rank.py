"""Two ranks of a training loop; at one step the second does not come to the all-reduce."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist

from tools.gpu_check.jobs.devices import take_device

LATE_AT = 20


def fetch_batch(step: int) -> None:
    """Rank 1 waits here for ever."""
    if step == LATE_AT and dist.get_rank() == 1:
        threading.Event().wait()


def main() -> None:
    """Loop until it hangs."""
    take_device()
    dist.init_process_group("nccl")
    values = torch.ones(1 << 16, device="cuda")
    for step in range(LATE_AT + 10):
        fetch_batch(step)
        dist.all_reduce(values)
        values.div_(dist.get_world_size())
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
