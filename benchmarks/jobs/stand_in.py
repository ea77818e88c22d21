"""A data-parallel job whose compute is a timed stand-in for a device: the cores do not blur it.

Each rank waits for its "device" (a timer, not work) and all-reduces. Used by the straggler
benchmarks and tests; no figure from it says anything about a real device.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4, help="waits and all-reduces a step")
    parser.add_argument("--layer-ms", type=float, default=20.0)
    parser.add_argument("--elements", type=int, default=16384)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    for _ in range(options.steps):
        for layer in range(options.layers):
            until = time.monotonic() + options.layer_ms / 1e3
            while (left := until - time.monotonic()) > 0.0:
                time.sleep(left)
            dist.all_reduce(torch.full((options.elements + layer,), float(rank)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
