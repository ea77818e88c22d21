"""A data-parallel job whose compute is a timed stand-in for a device: the cores do not blur it.

Each rank waits for its "device" (a timer, not work) and all-reduces. Used by the straggler
benchmarks and tests; no figure from it says anything about a real device.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.jobs.batches import batches
from relkit import faults


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4, help="all-reduces a step")
    parser.add_argument("--step-ms", type=float, default=80.0)
    parser.add_argument("--elements", type=int, default=16384)
    parser.add_argument("--tell-step", type=int, default=-1, help="rank 0 makes --tell then")
    parser.add_argument("--tell", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    injector = faults.from_environment()
    dist.init_process_group("gloo")
    values = [torch.ones(options.elements + layer) for layer in range(options.layers)]
    for step, _batch in enumerate(batches(options.steps, injector)):
        injector.before_compute(step)
        if step == options.tell_step and dist.get_rank() == 0:
            options.tell.touch()
        for value in values:
            with injector.compute(step):
                wait(options.step_ms / options.layers / 1e3)
            dist.all_reduce(value.fill_(1.0))
    dist.destroy_process_group()


def wait(time_s: float) -> None:
    """A device that is busy for so long."""
    until = time.monotonic() + time_s
    while (left := until - time.monotonic()) > 0.0:
        time.sleep(left)


if __name__ == "__main__":
    main()
