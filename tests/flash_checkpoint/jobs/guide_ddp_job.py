"""A DistributedDataParallel job whose calls of the checkpointer are the text of DLRover's guide.

    guide_ddp_job.py ddp FOLDER STEPS EVERY_DISK DEEDS

DEEDS: as in ddp_job.py. The guide's text is executed as it stands, but for the module that is
imported, the layout that its text has lost, and a closing bracket that is missing in it. A job that
comes to its end trains once more without saving.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.flash_checkpoint.jobs.ddp_job import do
from tests.flash_checkpoint.jobs.fsdp_job import train
from tests.job_end import end_rank

GUIDE = Path(__file__).parents[2] / "data" / "dlrover_guide_ddp.txt"
THEIRS, OURS = "dlrover.trainer.torch.flash_checkpoint.ddp", "relkit.flash_checkpoint.ddp"
MADE = "checkpointer = DdpCheckpointer(checkpoint_dir)"
LOADED = "ckpt_dict = checkpointer.load_checkpoint()"


def parts(text: str) -> tuple[str, str, str, str]:
    """The guide's code: makes the checkpointer, saves a step, loads, and takes what was loaded."""
    assert text.count(THEIRS) == text.count(MADE) == text.count(LOADED) == 1
    assert text.endswith('optimizer.load_state_dict(ckpt_dict["optimizer"]\n')
    make, rest = text.replace(THEIRS, OURS).split(MADE)
    save, take = rest.split(LOADED)
    lines, inside = [], False
    for line in save.splitlines():
        lines.append("    " * inside + line)
        # Each condition of the guide is for one call, whose bracket ends on a line of its own.
        inside = line.endswith(":") or (inside and line != ")")
    return make + MADE, "\n".join(lines), LOADED, take.rstrip() + ")"


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Model and optimizer; the same on every rank, whenever they are made."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 4)
    )
    model = DistributedDataParallel(net)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def main() -> None:
    """Train, save at every step, resume from the newest save."""
    warnings.simplefilter("ignore")
    kind, folder, steps, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    deeds = [deed.split(":") for deed in sys.argv[5].split(",")]
    make, save, load, take = parts(GUIDE.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    model, optimizer = made()
    names: dict[str, Any] = {
        "os": os, "model": model, "optimizer": optimizer, "checkpoint_dir": folder,
        "save_memory_interval": 1, "save_storage_interval": every,
    }  # fmt: skip
    exec(f"{make}\n{load}", names)  # noqa: S102
    begun = 0
    # The guide loads what it has saved before; a first start has nothing.
    if names["ckpt_dict"]:
        exec(take, names)  # noqa: S102
        begun = names["ckpt_dict"]["step"]
    for step in range(begun + 1, steps + 1):
        train(kind, step, model, optimizer, f"attempt-{attempt}")
        names |= {"step": step, "iter_num": step}
        exec(save, names)  # noqa: S102
        for deed in deeds:
            if deed[:3] == [attempt, str(rank), str(step)]:
                do(*deed[3:], save=names["checkpointer"]._memory_save)
    model, optimizer = made()
    for step in range(1, steps + 1):
        train(kind, step, model, optimizer, "undisturbed")
    del model
    end_rank()


if __name__ == "__main__":
    main()
