"""All-reduces over NCCL in a world of any size, and how many of how many bytes they were."""

from __future__ import annotations

import json
import os

import torch
import torch.distributed as dist

from tools.gpu_check.jobs.devices import take_device

TIMES = 40
ELEMENTS = 1 << 20


def main() -> None:
    """Reduce, and print."""
    take_device()
    dist.init_process_group("nccl")
    values = torch.ones(ELEMENTS, device="cuda")
    for _ in range(TIMES):
        dist.all_reduce(values)
        values.div_(dist.get_world_size())
    torch.cuda.synchronize()
    right = bool((values == 1.0).all())
    dist.destroy_process_group()
    if int(os.environ["RANK"]) == 0:
        print(json.dumps({"times": TIMES, "size_bytes": 4 * ELEMENTS, "right": right}))


if __name__ == "__main__":
    main()
