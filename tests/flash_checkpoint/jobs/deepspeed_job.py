"""A job with DeepSpeed's engine, of which flash checkpoint keeps every step.

    deepspeed_job.py STAGE FOLDER STEPS EVERY_DISK DEEDS

STAGE: of ZeRO, 0 to 3. DEEDS: as in ddp_job.py; with "-", buffers are no part of what is printed as
loss, because those on disk are rank 0's. A job that comes to its end trains once more from
the beginning and saves nothing, as "undisturbed", and prints what each rank has after each of those
steps.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from relkit.flash_checkpoint.deepspeed import DeepSpeedCheckpointer, StorageType
from tests.flash_checkpoint.jobs.ddp_job import do
from tests.flash_checkpoint.jobs.deepspeed_engine import contents, made
from tests.job_end import end_rank


def seed() -> None:
    """Streams that differ between ranks."""
    rank = dist.get_rank()
    torch.manual_seed(70 + rank)
    random.seed(70 + rank)
    np.random.seed(70 + rank)


def train(engine: Any, stage: str, name: str, *, with_buffers: bool) -> None:  # noqa: ANN401
    """One step."""
    factor = float(np.random.rand()) + random.randint(0, 3)  # noqa: S311
    loss = engine(torch.randn(4, 16) * factor).square().mean()
    engine.backward(loss)
    engine.step()
    if with_buffers:
        loss = loss + engine.module[1].running_mean.sum()
    place = f"rank {dist.get_rank()} step {engine.global_steps}"
    os.write(1, f"{name} {stage} {place} loss {loss.item().hex()}\n".encode())


def main() -> None:
    """Train, save at every step, resume from the newest save."""
    warnings.simplefilter("ignore")
    stage, folder, steps, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    deeds = [deed.split(":") for deed in sys.argv[5].split(",")]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    engine = made(int(stage))
    seed()
    checkpointer = DeepSpeedCheckpointer(engine, folder)
    _, client_state = checkpointer.load_checkpoint(folder)
    assert client_state.get("seen", 0) == 8 * engine.global_steps
    for step in range(engine.global_steps + 1, steps + 1):
        train(engine, stage, f"attempt-{attempt}", with_buffers=deeds != [["-"]])
        seen = {"seen": 8 * step}
        save = checkpointer.save_checkpoint(
            folder, client_state=seen, storage_type=StorageType.MEMORY
        )
        for deed in deeds:
            if deed[:3] == [attempt, str(rank), str(step)]:
                do(*deed[3:], save=save)
        if step % every == 0:
            checkpointer.save_checkpoint(folder, client_state=seen).wait()
    dist.barrier()
    checkpointer.close()
    engine = made(int(stage))
    seed()
    for _ in range(steps):
        train(engine, stage, "undisturbed", with_buffers=deeds != [["-"]])
        os.write(1, f"state {contents(engine)}\n".encode())
    dist.barrier()
    end_rank()


if __name__ == "__main__":
    main()
