"""A model on the GPU that is saved into memory at every step; killed once, it goes on from there.

flash.py FOLDER: for the checkpoints, and for what each step's state was.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from tools.gpu_check.jobs.devices import take_device

STEPS, KILLED_AT = 12, 8
WIDTH, LAYERS = 4096, 4


def digest(state: dict[str, Any]) -> str:
    """Of the weights and the optimizer's moments, bit for bit."""
    found = hashlib.sha256()
    moments = state["optimizer"]["state"]
    tensors = [
        *state["model"].values(), *(each[key] for each in moments.values() for key in sorted(each)),
    ]  # fmt: skip
    for tensor in tensors:
        found.update(tensor.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    """Train, save, and say what was resumed."""
    folder = Path(sys.argv[1])
    take_device()
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    checkpointer = DdpCheckpointer(folder)
    loaded = checkpointer.load_checkpoint()
    resumed = loaded.get("step", 0)
    right = False
    if loaded:
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        now = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        right = digest(now) == (folder / f"digest-{resumed}").read_text()
    batch = torch.randn(64, WIDTH, device="cuda")
    # Not whether something was resumed: where nothing was, a second kill would hide that.
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    took_s = []
    for step in range(resumed + 1, STEPS + 1):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        state: dict[str, Any] = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
        }  # fmt: skip
        (folder / f"digest-{step}").write_text(digest(state))
        torch.cuda.synchronize()
        began = time.perf_counter()
        path = str(folder / f"checkpoint-{step}.pt")
        checkpointer.save_checkpoint(step, state, path, storage_type=StorageType.MEMORY)
        took_s.append(time.perf_counter() - began)
        if step == KILLED_AT and is_first:
            os.kill(os.getpid(), signal.SIGKILL)
    size_bytes = sum(tensor.nbytes for tensor in model.state_dict().values()) * 3
    dist.destroy_process_group()
    print(json.dumps({
        "resumed": resumed, "right": right, "size_bytes": size_bytes, "save_s": min(took_s),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
