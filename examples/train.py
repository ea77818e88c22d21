"""A tiny byte-level GPT under DistributedDataParallel on gloo, learning twenty-seven sonnets.

    relkit launch --nproc-per-node 4 examples/train.py --steps 100

It is a real training job and small enough to read: the faults of relkit.faults can be injected
into it (`relkit launch --inject hang:rank=2:step=5 ...`); without that, their hooks do nothing.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from relkit import faults
from relkit.faults import CollectiveFault, Injector

VOCABULARY = 256


class Block(nn.Module):
    """One transformer layer: causal attention, then a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_attention(x)).split(width, dim=2)
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        wide = functional.gelu(self.up(self.norm_mlp(x)))
        deeper: Tensor = x + self.down(wide)
        return deeper


class GPT(nn.Module):
    """Bytes in, the logits of the next byte out."""

    def __init__(self, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        hidden = self.blocks(self.token(tokens) + self.position(places))
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Loader:
    """Random windows of the text: seeded, and different on every rank."""

    def __init__(self, text: Tensor, batch: int, length: int, seed: int) -> None:
        self.text, self.batch, self.length = text, batch, length
        self.random = torch.Generator().manual_seed(seed)
        self.lock = threading.Lock()

    def next_batch(self, step: int, injector: Injector) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one step."""
        injector.before_batch(step, self.lock)
        with self.lock:
            last = len(self.text) - self.length - 1
            starts = torch.randint(last, (self.batch,), generator=self.random).tolist()
        windows = torch.stack([self.text[i : i + self.length + 1] for i in starts]).long()
        return windows[:, :-1], windows[:, 1:]


class Logger:
    """Prints the loss on rank 0; the two locks are what a real logger with a flusher has."""

    def __init__(self, rank: int, every: int) -> None:
        self.rank, self.every = rank, every
        self.metrics_lock, self.file_lock = threading.Lock(), threading.Lock()
        self.started = time.monotonic()

    def log(self, step: int, loss: float, injector: Injector) -> None:
        """Say how the job is doing, every so many steps."""
        with self.metrics_lock:
            injector.before_log(step, self.metrics_lock, self.file_lock)
            with self.file_lock:
                if self.rank == 0 and step % self.every == 0:
                    elapsed_s = time.monotonic() - self.started
                    print(f"step {step:4d}  loss {loss:.4f}  {elapsed_s:6.1f} s", flush=True)


def all_reduce(
    tensor: Tensor, fault: CollectiveFault, group: dist.ProcessGroup | None = None
) -> None:
    """The sum over all ranks, or what a fault makes of it on this one."""
    if fault is CollectiveFault.NONE:
        dist.all_reduce(tensor, group=group)
    elif fault is CollectiveFault.OTHER_OP:
        gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, tensor, group=group)
    elif fault is CollectiveFault.OTHER_SIZE:
        dist.all_reduce(tensor.repeat(4096), group=group)


def mean_loss(loss: Tensor, group: dist.ProcessGroup, fault: CollectiveFault) -> float:
    """The loss averaged over all ranks: one all_reduce on a group of its own."""
    total = loss.detach().clone()
    all_reduce(total, fault, group)
    return float(total) / dist.get_world_size()


def read_text(folder: Path) -> Tensor:
    """All .txt files of a folder as one tensor of bytes."""
    raw = b"".join(path.read_bytes() for path in sorted(folder.glob("*.txt")))
    if not raw:
        raise SystemExit(f"no .txt file to learn from in {folder}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8, help="sequences a rank and step")
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--log-every", type=int, default=5, help="steps between two lines")
    parser.add_argument("--seed", type=int, default=1609)
    parser.add_argument("--pause", help="STEP:SECONDS, a long phase such as an evaluation")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    return parser.parse_args()


def pause_at(step: int, pause: str | None) -> None:
    """Stand still before one step, as an evaluation or a checkpoint would."""
    at, _, seconds = (pause or "").partition(":")
    if at and int(at) == step:
        time.sleep(float(seconds))


def train(options: argparse.Namespace, model: GPT, optimizer: torch.optim.Optimizer) -> None:
    """The training loop of one rank."""
    rank = dist.get_rank()
    injector = faults.from_environment()
    replica = DistributedDataParallel(model)
    # Every rank reads other parts of the text: the loader's seed is the rank's own.
    loader = Loader(
        read_text(options.data), options.batch_size, options.seq_len, options.seed + rank
    )
    logger = Logger(rank, options.log_every)
    metrics = dist.new_group()
    assert isinstance(metrics, dist.ProcessGroup)

    for step in range(options.steps):
        pause_at(step, options.pause)
        inputs, targets = loader.next_batch(step, injector)
        injector.before_compute(step)
        fault = injector.at_collective(step, "gradients")
        # As inside no_sync(): without it, the backward pass leaves the gradients as they are.
        replica.require_backward_grad_sync = fault is CollectiveFault.NONE
        with injector.compute(step):
            logits = replica(inputs)
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if not replica.require_backward_grad_sync:
            all_reduce(loss.detach().clone(), fault)
        optimizer.step()
        average = mean_loss(loss, metrics, injector.at_collective(step))
        logger.log(step, average, injector)
    if rank == 0:
        print(f"done: {options.steps} steps, loss {average:.4f}", flush=True)


@record
def main() -> None:
    """Join the job, train, leave."""
    options = parse_arguments()
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        raise SystemExit("start it with: relkit launch --nproc-per-node 4 examples/train.py")
    # The same seed everywhere: all ranks start from equal weights.
    torch.manual_seed(options.seed)
    model = GPT(options.width, options.heads, options.layers, options.seq_len)
    # Before the first collective: the first optimizer of a process imports torch's compiler,
    # which takes seconds on a busy machine and would be the longest pause of the whole job.
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    dist.init_process_group("gloo")
    try:
        train(options, model, optimizer)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
