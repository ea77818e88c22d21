"""A data-parallel job with real compute on one core a rank, for the straggler benchmarks."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.jobs.batches import batches
from benchmarks.jobs.turns import Turns
from relkit import faults

WIDTH = 256


def main() -> None:
    """Run the job; with --times, write how long each step took (s, one a line)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=3, help="all-reduces a step")
    parser.add_argument("--products", type=int, default=48, help="matrix products a step")
    parser.add_argument("--elements", type=int, default=65536)
    parser.add_argument("--pinned", action="store_true", help="each rank on a core of its own")
    parser.add_argument("--times", type=Path)
    parser.add_argument("--ends", type=Path, help="one a step, s, monotonic, as they are reached")
    parser.add_argument("--turns", type=Path, help="folder of named pipes: see turns.py")
    parser.add_argument("--turn-steps", type=int, default=1, help="steps of a turn")
    options = parser.parse_args()
    if options.pinned:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    torch.set_num_threads(1)
    injector = faults.from_environment()
    dist.init_process_group("gloo")
    left = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    right = left.clone()
    values = [torch.ones(options.elements + layer) for layer in range(options.layers)]
    turns = Turns(options.turns, dist.get_rank(), options.turn_steps)
    times_s = []
    for step, _batch in enumerate(batches(options.steps, injector)):
        turns.wait(step)
        began_s = time.monotonic()
        injector.before_compute(step)
        for value in values:
            with injector.compute(step):
                for _ in range(options.products // options.layers):
                    torch.mm(left, right)
            dist.all_reduce(value.fill_(1.0))
        times_s.append(time.monotonic() - began_s)
        if options.ends is not None and dist.get_rank() == 0:
            with options.ends.open("a") as ends:
                ends.write(f"{time.monotonic():.6f}\n")
    turns.end()
    if options.times is not None and dist.get_rank() == 0:
        options.times.write_text("".join(f"{each:.6f}\n" for each in times_s))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
