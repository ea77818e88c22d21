"""Hangs on purpose, and leaves PyTorch's flight recorder of every rank.

usage: torchrun --nproc-per-node 4 recorded_hang.py CASE RANK FOLDER

Ranks make all steps together; in step 5 RANK does what CASE says. Two seconds after all have
come there, each writes what torch has recorded to FOLDER/rank_RANK, and ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

STEPS, FAULTY_STEP, SETTLED_S, LIMIT_S = 8, 5, 2.0, 60.0


def usual() -> None:
    """One step's collectives."""
    dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(3), 0)


def absent() -> None:
    """Compute instead."""
    threading.Event().wait()


def other_call() -> None:
    """Gather where the others reduce."""
    dist.all_gather([torch.ones(4) for _ in range(dist.get_world_size())], torch.ones(4))


def skipped() -> None:
    """Leave the reduction out."""
    dist.broadcast(torch.ones(3), 0)


def one_more() -> None:
    """Reduce twice."""
    dist.all_reduce(torch.ones(4))
    usual()


CASES: dict[str, Callable[[], None]] = {
    "absent": absent,
    "other-call": other_call,
    "skipped": skipped,
    "one-more": one_more,
}


def leave_the_record(folder: Path, rank: int, size: int) -> None:
    """Once all ranks are in the faulty step."""
    end_s = time.monotonic() + LIMIT_S
    while len(list(folder.glob("came-*"))) < size and time.monotonic() < end_s:
        time.sleep(0.05)
    time.sleep(SETTLED_S)
    recorded: bytes = _distributed_c10d._dump_fr_trace()  # type: ignore[attr-defined]
    (folder / f"rank_{rank}").write_bytes(recorded)
    # The ranks before have to be alive until all have written.
    while len(list(folder.glob("rank_*"))) < size and time.monotonic() < end_s:
        time.sleep(0.05)
    os._exit(0)


def main() -> None:
    """Run the case."""
    deed, at_fault, folder = CASES[sys.argv[1]], int(sys.argv[2]), Path(sys.argv[3])
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    recorder = threading.Thread(target=leave_the_record, args=(folder, rank, size))
    recorder.start()
    for step in range(STEPS):
        if step == FAULTY_STEP:
            (folder / f"came-{rank}").touch()
        if step == FAULTY_STEP and rank == at_fault:
            deed()
        else:
            usual()
    recorder.join()


if __name__ == "__main__":
    main()
