"""A DistributedDataParallel job with the calls of DLRover's guide.

    ddp_job.py FOLDER STEPS EVERY_DISK [DEEDS]

DEEDS: ATTEMPT:RANK:STEP[:DEED], ... happens to that rank in that attempt when it has made that step
and begun to save it. DEED: kill (the default); or, once all ranks have saved that step, for which
each of them must have such a deed: kill-saved, stop-saved (it makes no more steps), go-saved.

RELKIT_TEST_STATES names a folder in which each rank leaves the state of each step, as torch saves
it. With RELKIT_TEST_DISK_FAILS the job ends well although its last save to disk has failed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from relkit.errors import UnwritablePath
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.flash_checkpoint.save_handle import SaveHandle
from tests.job_end import end_rank

DISK_FAILS = "RELKIT_TEST_DISK_FAILS" in os.environ
STATES = os.environ.get("RELKIT_TEST_STATES", "")


def do(deed: str = "kill", *, save: SaveHandle) -> None:
    """What happens to a rank."""
    if deed.endswith("-saved"):
        save.wait()
        dist.barrier()
    if deed == "stop-saved":
        os.write(1, b"stopped\n")
        threading.Event().wait()
    if not deed.startswith("kill"):
        return
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train, save at every step, resume from the newest save."""
    folder, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    deeds = [deed.split(":") for deed in sys.argv[4].split(",")] if len(sys.argv) > 4 else []
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    torch.manual_seed(rank)
    random.seed(rank)
    np.random.seed(rank)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 4),
    )  # fmt: skip
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    checkpointer = DdpCheckpointer(folder)
    begun = 0
    ckpt_dict = checkpointer.load_checkpoint()
    if ckpt_dict:
        model.load_state_dict(ckpt_dict["model"])
        optimizer.load_state_dict(ckpt_dict["optimizer"])
        schedule.load_state_dict(ckpt_dict["schedule"])
        torch.set_rng_state(ckpt_dict["torch"])
        np.random.set_state(ckpt_dict["numpy"])
        random.setstate(ckpt_dict["python"])
        begun = ckpt_dict["step"]
    for step in range(begun + 1, steps + 1):
        batch = torch.randn(8, 16) * float(np.random.rand()) + random.randint(0, 3)  # noqa: S311
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        # One write: both ranks have the same output.
        os.write(1, f"rank {rank} step {step} loss {loss.item().hex()}\n".encode())
        state_dict: dict[str, Any] = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "step": step,
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }
        ckpt_path = os.path.join(folder, f"checkpoint-{step}.pt")  # noqa: PTH118  the guide's own
        if STATES:
            torch.save(state_dict, Path(STATES) / f"{rank}-{step}.pt")
        save = checkpointer.save_checkpoint(
            step, state_dict, ckpt_path, storage_type=StorageType.MEMORY
        )
        for deed in deeds:
            if deed[:3] == [attempt, str(rank), str(step)]:
                do(*deed[3:], save=save)
        if step % every == 0:
            checkpointer.save_checkpoint(step, state_dict, ckpt_path, storage_type=StorageType.DISK)
    with suppress(UnwritablePath) if DISK_FAILS else nullcontext():
        checkpointer.wait_latest_checkpoint()
    # Before the group, which torch would else end together with the model: waiting for a thread of
    # gloo's, and holding the GIL, which that thread may be waiting for (pytorch/pytorch#56297).
    del model
    end_rank()


if __name__ == "__main__":
    main()
