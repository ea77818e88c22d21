"""relkit's trainer, in which rank 1 goes wrong in one of the sums that a layer makes.

It replaces the trainer's own all_reduce for that one call, so the fault is in a group in which
everything else is the model's.

usage: tensor_parallel_job.py skip|op|size FLAGS OF examples/pretrain_gpt.py
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relkit.trainer.core import collectives
from relkit.trainer.core.mesh import Group

SCRIPT = Path(__file__).parents[3] / "examples" / "pretrain_gpt.py"
BAD_RANK = "1"
# Some steps into the job.
BAD_CALL = 50


def with_fault(healthy: Callable[..., Tensor], fault: str) -> Callable[..., Tensor]:
    """The all_reduce of a layer, of which one call is left out or is another one."""
    calls = count()

    def all_reduce(tensor: Tensor, group: Group, *more: Any) -> Tensor:  # noqa: ANN401
        if next(calls) != BAD_CALL:
            return healthy(tensor, group, *more)
        assert group.size > 1
        sys.stdout.write(f"{fault} in the group of ranks {group.ranks}\n")
        if fault == "op":
            gathered = [torch.empty_like(tensor) for _ in range(group.size)]
            dist.all_gather(gathered, tensor, group=group.process_group)
        elif fault == "size":
            dist.all_reduce(tensor.flatten()[:64].clone(), group=group.process_group)
        return tensor

    return all_reduce


def main() -> None:
    """Train."""
    fault = sys.argv.pop(1)
    if os.environ["RANK"] == BAD_RANK:
        collectives.all_reduce = with_fault(collectives.all_reduce, fault)
    runpy.run_path(str(SCRIPT), run_name="__main__")


if __name__ == "__main__":
    main()
