"""A training loop in which one kernel never ends: the device hangs, the host waits."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tools.gpu_check.jobs.devices import take_device

SPIN_AT = 20
CYCLES = 1 << 50


def main() -> None:
    """Loop until it hangs."""
    take_device()
    dist.init_process_group("nccl")
    values = torch.ones(1 << 16, device="cuda")
    for step in range(SPIN_AT + 10):
        if step == SPIN_AT:
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
        dist.all_reduce(values)
        values.div_(dist.get_world_size())
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
