"""Data-parallel jobs on gloo, one after the other, each traced by torch.profiler on all ranks.

In a job with a slow rank, that one has more to do in the backward pass. All ranks end their steps
together, because they wait for each other's gradients: the slow one is not seen in their lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from tests.job_end import end_rank

WIDTH, LAYERS = 256, 4


class Work(torch.autograd.Function):
    """Something to do in the backward pass, which a trace shows as an operator.

    Its amount is in ms that are slept, as a wait for a device, or in products of matrices.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, x: Tensor, kind: str, amount: int
    ) -> Tensor:
        """Nothing yet."""
        ctx.kind, ctx.amount = kind, amount  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor, None, None]:
        """All of it."""
        if ctx.kind == "pause":  # type: ignore[attr-defined]
            time.sleep(ctx.amount / 1e3)  # type: ignore[attr-defined]
        else:
            product = torch.ones(WIDTH, WIDTH)
            for _ in range(ctx.amount):  # type: ignore[attr-defined]
                product = product @ product
                product /= product.norm()
        return gradient, None, None


def traced_job(path: Path, kind: str, amount: int, steps: int) -> list[float]:
    """Train for some steps and write the trace; the lengths of the steps, s."""
    first, *others = (nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    replica = DistributedDataParallel(nn.Sequential(first, *others), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(replica.parameters(), lr=1e-4)
    lengths = []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=2, active=steps, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(str(path)),
    ) as profiler:
        for step in range(steps + 3):
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = Work.apply(replica(torch.ones(16, WIDTH)), kind, amount).square().mean()  # type: ignore[no-untyped-call]
            loss.backward()
            optimizer.step()
            profiler.step()
            if step >= 3:
                lengths.append(time.perf_counter() - began)
    return lengths


def main() -> None:
    """Run the jobs, as one of the ranks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slow", default="-1", help="the slow rank of each job, -1 = none")
    parser.add_argument("--kind", choices=("pause", "compute"), default="pause")
    parser.add_argument("--amount", type=int, default=40, help="ms, or products")
    parser.add_argument("--more", type=int, default=20, help="of the slow rank")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    for number, slow in enumerate(map(int, options.slow.split(","))):
        folder = options.folder / f"job{number}"
        folder.mkdir(exist_ok=True, parents=True)
        dist.init_process_group(
            "gloo", f"file://{options.folder / f'store{number}'}", rank=rank, world_size=world
        )
        amount = options.amount + (options.more if rank == slow else 0)
        lengths = traced_job(folder / f"rank{rank}.json", options.kind, amount, options.steps)
        (options.folder / f"lengths{number}.{rank}.txt").write_text(json.dumps(lengths))
        dist.barrier()
        if number < options.slow.count(","):
            dist.destroy_process_group()
    end_rank()


if __name__ == "__main__":
    main()
