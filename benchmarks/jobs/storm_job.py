"""The training job of benchmarks/storms/storm.py: the same losses, whatever happens to it.

    relkit launch ... storm_job.py FOLDER STEPS PAUSE_S

It saves every step into memory and every 25th to disk. Each rank appends to FOLDER/rank-R:
`loaded STEP NODE PID` where it starts, and `made STEP LOSS` after each step. It ends after STEPS
steps, or when FOLDER/end is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import relkit
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.process.process_exit import leave

_DISK_EVERY = 25


class Notes:
    """What a rank says, a line in one write each: a line is whole or not there."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, *words: object) -> None:
        """Append a line."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def average_gradients(model: torch.nn.Module) -> None:
    """By hand: DistributedDataParallel lays its buckets out anew after the first step, and sums of
    four numbers depend on their order."""
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())


def train(folder: Path, steps: int, pause_s: float) -> None:
    """Go on from the newest step that was saved."""
    rank = dist.get_rank()
    notes = Notes(folder / f"rank-{rank}")
    torch.manual_seed(1)
    model = torch.nn.Linear(16, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpointer = DdpCheckpointer(folder / "checkpoints")
    begun = 0
    if state := checkpointer.load_checkpoint():
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begun = state["step"]
    notes.say("loaded", begun, os.environ.get("RELKIT_NODE_NAME", ""), os.getpid())
    is_over = torch.zeros(1)
    for step in range(begun + 1, steps + 1):
        relkit.step(step)
        # Files on disk have the random state of rank 0 only: none is kept.
        torch.manual_seed(1000 * step + rank)
        loss = (model(torch.randn(8, 16)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        notes.say("made", step, loss.item().hex())
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        kind = StorageType.DISK if step % _DISK_EVERY == 0 else StorageType.MEMORY
        checkpointer.save_checkpoint(step, state, storage_type=kind)
        time.sleep(pause_s)
        # All leave in the same turn.
        is_over.fill_((folder / "end").exists())
        dist.all_reduce(is_over)
        if is_over:
            break
    checkpointer.wait_latest_checkpoint()


def main() -> None:
    """Join the job, train, leave."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    dist.destroy_process_group()
    # Threads of gloo live on with what is left of the model, and one that drops a tensor while the
    # interpreter ends would abort the process (pytorch/pytorch#179291).
    leave(0)


if __name__ == "__main__":
    main()
