"""A data-parallel job on gloo with one slow rank: gradients are reduced during the backward pass.

Its buckets are small, so that several all-reduces are in flight while the rank still computes.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import relkit
from tests.job_end import end_rank


class Samples(Dataset[Tensor]):
    """Batches that take a while to come."""

    def __init__(self, steps: int, width: int, delay_s: float) -> None:
        self.steps, self.width, self.delay_s = steps, width, delay_s

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, place: int) -> Tensor:
        if place >= self.steps:
            raise IndexError
        time.sleep(self.delay_s)
        return torch.full((64, self.width), float(place % 7))


def train(options: argparse.Namespace) -> None:
    """The loop."""
    layers = [nn.Linear(options.width, options.width) for _ in range(options.layers)]
    slow = dist.get_rank() == options.slow_rank
    litter = [[n] for n in range(300_000)] if options.collect_every and slow else []
    delay_ms = options.slow_input_ms if slow else options.input_ms
    loader = DataLoader(Samples(options.steps, options.width, delay_ms / 1e3), batch_size=None)
    replica = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    for step, batch in enumerate(loader):
        if options.marks:
            relkit.step(step)
        loss = replica(batch).square().mean()
        for _ in range(options.compute if slow else 0):
            with torch.no_grad():
                layers[0](batch)
        replica.zero_grad()
        loss.backward()
        # By hand: the first optimizer of a process imports torch's compiler, which takes seconds.
        with torch.no_grad():
            for weight in replica.parameters():
                if weight.grad is not None:
                    weight.sub_(weight.grad, alpha=1e-6)
        if options.collect_every and slow and step % options.collect_every == 0:
            gc.collect()
    assert len(litter) in (0, 300_000)


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--compute", type=int, default=0, help="more passes through a layer")
    parser.add_argument("--input-ms", type=float, default=2.0)
    parser.add_argument("--slow-input-ms", type=float, default=2.0)
    parser.add_argument("--collect-every", type=int, default=0, help="a full collection")
    parser.add_argument("--marks", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    train(options)
    end_rank()


if __name__ == "__main__":
    # Without a launcher's variables there is nobody to talk to.
    assert "RANK" in os.environ
    main()
