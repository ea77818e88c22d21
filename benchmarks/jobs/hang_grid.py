"""Tensor-, pipeline- and data-parallel training under gloo that goes wrong.

--layout TPxPPxDP; ranks of one tensor-parallel group lie side by side, then data, then pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.jobs.hang_faults import Fault, options

MICRO_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Place:
    """One rank in the grid.

    Args:
        rank: of all; tensor, data: its groups; pipeline: its group, for sends and receives.
        before, after: the ranks of the stages around it, None at the ends.
    """

    rank: int
    tensor: dist.ProcessGroup
    data: dist.ProcessGroup
    pipeline: dist.ProcessGroup
    before: int | None
    after: int | None


def place(rank: int, tp: int, pp: int, dp: int) -> Place:
    """Make all groups, on every rank in the same order, and return this rank's."""
    grid = torch.arange(tp * pp * dp).reshape(pp, dp, tp)
    mine: list[dist.ProcessGroup] = []
    chain: list[int] = []
    for rows in (grid.reshape(-1, tp), grid.permute(0, 2, 1).reshape(-1, dp),
                 grid.permute(1, 2, 0).reshape(-1, pp)):  # fmt: skip
        for row in rows.tolist():
            group = dist.new_group(row)
            if rank in row:
                mine.append(group)
                chain = row
    stage = chain.index(rank)
    before = chain[stage - 1] if stage else None
    after = chain[stage + 1] if stage + 1 < len(chain) else None
    return Place(rank, mine[0], mine[1], mine[2], before, after)


def layer(at: Place, fault: Fault, step: int, micro_batch: int, hidden: Tensor) -> None:
    """Forward through this stage: the parts of the tensor-parallel ranks are added up."""
    fault.on_host(at.rank, step, micro_batch)
    if fault.here("skip-tensor", at.rank, step, micro_batch):
        return
    if fault.here("size-tensor", at.rank, step, micro_batch):
        hidden = hidden[: len(hidden) // 2].clone()
    if fault.here("other-tensor", at.rank, step, micro_batch):
        parts = [torch.empty_like(hidden) for _ in range(dist.get_world_size(at.tensor))]
        dist.all_gather(parts, hidden, group=at.tensor)
    else:
        dist.all_reduce(hidden, group=at.tensor)


def forward_backward(at: Place, fault: Fault, step: int, micro_batch: int) -> None:
    """One micro-batch down the stages and its gradient up."""
    hidden = torch.ones(512)
    if at.before is not None:
        dist.recv(hidden, at.before, group=at.pipeline)
    layer(at, fault, step, micro_batch, hidden)
    if at.after is not None:
        if not fault.here("skip-send", at.rank, step, micro_batch):
            dist.send(hidden, at.after, group=at.pipeline)
        dist.recv(hidden, at.after, group=at.pipeline)
    dist.all_reduce(hidden, group=at.tensor)
    if at.before is not None:
        dist.send(hidden, at.before, group=at.pipeline)


def reduce_gradients(at: Place, fault: Fault, step: int) -> None:
    """Gradients over the replicas, those of the norms over the tensor-parallel ranks, the loss."""
    norms, gradients = torch.ones(64), torch.ones(2048)
    opposite = fault.here("opposite", at.rank, step)
    if opposite:
        dist.all_reduce(torch.ones(1))
    dist.all_reduce(norms, group=at.tensor)
    if not fault.here("skip-data", at.rank, step):
        dist.all_reduce(gradients, group=at.data)
    if not (opposite or fault.here("skip-world", at.rank, step)):
        dist.all_reduce(torch.ones(1))


def main() -> None:
    """Run the job."""
    fault, given = options("layout")
    dist.init_process_group("gloo")
    tp, pp, dp = (int(part) for part in given.layout.split("x"))
    at = place(dist.get_rank(), tp, pp, dp)
    for step in range(given.steps):
        for micro_batch in range(MICRO_BATCHES):
            forward_backward(at, fault, step, micro_batch)
        reduce_gradients(at, fault, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
