"""Four ranks that meet, then compute for a while as imports do, and only then take their steps.

usage: slow_start_job.py SECONDS    CPU seconds that each rank computes before its first step
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

STEPS = 20


def main() -> None:
    """Run the job."""
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(8))
    begin_s = time.process_time()
    while time.process_time() - begin_s < float(sys.argv[1]):
        pass
    for _ in range(STEPS):
        dist.all_reduce(torch.ones(8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
