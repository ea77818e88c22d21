"""Data-parallel training under gloo that says its steps, and fails in one of many ways, or not.

usage: torchrun --nproc-per-node 4 crash_job.py --fault file --ranks 2 --step 3

Besides the faults of crash_faults.py: `retried` (an error that is caught and logged), `slow` (a
step that takes its time, with a warning).
"""

from __future__ import annotations

import argparse
import logging
import time

import torch
import torch.distributed as dist

from benchmarks.verdicts.corpus.crash_faults import FAULTS

STEPS = 6
_SLOW_S = 0.5
log = logging.getLogger("trainer")


def retried() -> None:
    """What a training survives."""
    try:
        FAULTS["network"]()
    except OSError:
        log.exception("writing metrics failed, trying again")
    log.warning("metrics were written at the second attempt")


def slow(step: int) -> None:
    """A step that takes longer than the others."""
    began_s = time.monotonic()
    time.sleep(_SLOW_S)
    log.warning("step %d: waited %.1f s for data", step, time.monotonic() - began_s)


def fail(fault: str, step: int) -> None:
    """The fault."""
    if fault == "retried":
        retried()
    elif fault == "slow":
        slow(step)
    elif fault:
        FAULTS[fault]()


def train(given: argparse.Namespace) -> None:
    """All steps."""
    rank, at_fault = dist.get_rank(), {int(rank) for rank in given.ranks.split(",") if rank}
    for step in range(STEPS):
        if step == given.step and rank in at_fault:
            fail(given.fault, step)
        loss = torch.full((4,), 4.0 / (step + 1))
        dist.all_reduce(loss)
        log.info("step %d loss %.4f", step, loss.mean().item() / dist.get_world_size())


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--ranks", default="")
    parser.add_argument("--step", type=int, default=3)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    dist.init_process_group("gloo")
    train(given)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
