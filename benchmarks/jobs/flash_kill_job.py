"""The training job of benchmarks/flash_job_kills.py: it saves every step into memory, and says so.

    relkit launch ... flash_kill_job.py FOLDER ELEMENTS EVERY_DISK

Each rank appends to FOLDER/rank-N: `loaded STEP SUM`, `made STEP SUM` before a step is saved, and
`saved STEP` when it is whole in memory. SUM is the checksum of the whole state. It ends when
FOLDER/end is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.process.process_exit import leave
from tests.flash_checkpoint.checksum import checksum


class Notes:
    """What a rank says, a line in one write each: a line is whole or not there."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, *words: object) -> None:
        """Append a line."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def asked_to_end(folder: Path) -> bool:
    """Whether rank 0 has seen the file; all ranks agree."""
    seen = torch.tensor(int((folder / "end").exists()))
    dist.broadcast(seen, 0)
    return bool(seen)


def learn(folder: Path, elements: int, every: int) -> None:
    """Train until the file is there."""
    rank = dist.get_rank()
    notes = Notes(folder / f"rank-{rank}")
    torch.manual_seed(rank)
    model = DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Linear(16, elements // 32), torch.nn.Dropout(0.2),
            torch.nn.Linear(elements // 32, 16),
        )
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpointer = DdpCheckpointer(folder / "checkpoints")
    state: dict[str, Any] = checkpointer.load_checkpoint()
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        notes.say("loaded", state["step"], checksum(state))
    else:
        notes.say("loaded", -1, 0)
    step = state["step"] + 1 if state else 0
    save: SaveHandle | None = None
    while not asked_to_end(folder):
        # The loop's own files have the random state of rank 0 only.
        torch.manual_seed(2 * step + rank)
        loss = (model(torch.randn(8, 16)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if save is not None:
            save.wait()
            notes.say("saved", save.step)
        optimizer.step()
        state = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
            "random": torch.get_rng_state(),
        }  # fmt: skip
        notes.say("made", step, checksum(state))
        save = checkpointer.save_checkpoint(step, state, storage_type=StorageType.MEMORY)
        if step % every == every - 1:
            checkpointer.save_checkpoint(step, state, storage_type=StorageType.DISK)
        step += 1
    checkpointer.wait_latest_checkpoint()


def main() -> None:
    """Join the job, train, leave."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    learn(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    # After the model, with which torch would else end the group: pytorch/pytorch#56297.
    dist.destroy_process_group()
    # Threads of gloo live on with what is left of the model, and one that drops a tensor while the
    # interpreter ends would abort the process (pytorch/pytorch#179291).
    leave(0)


if __name__ == "__main__":
    main()
