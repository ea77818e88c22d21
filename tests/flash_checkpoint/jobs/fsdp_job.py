"""An FSDP job that saves and loads with the code of DLRover's guide, and one of `fully_shard`.

    fsdp_job.py KIND FOLDER STEPS EVERY_DISK DEEDS

KIND: guide or fully_shard. DEEDS: as in ddp_job.py. A job that comes to its end trains once more
from the beginning, saves nothing, prints the losses of that as those of attempt "undisturbed", and
leaves the whole model after each of those steps in FOLDER.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard

from relkit.flash_checkpoint.fsdp import (
    FsdpShardCheckpointer,
    StorageType,
)
from tests.flash_checkpoint.jobs.ddp_job import do
from tests.job_end import end_rank

# Its functions are re-exported in a way that is not for type checkers.
dist_cp: Any = torch.distributed.checkpoint
WHOLES = "wholes.pt"


def made(kind: str) -> tuple[Any, torch.optim.Optimizer]:
    """The model and its optimizer."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5))
    if kind == "guide":
        model: Any = FSDP(net, use_orig_params=True, device_id=torch.device("cpu"))
    else:
        mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(net[0], mesh=mesh)
        model = fully_shard(net, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


class GuideSaver:
    """The guide's two snippets: only what is imported has changed."""

    def __init__(self, checkpoint_dir: str, model: Any, optimizer: Any) -> None:  # noqa: ANN401
        self.checkpoint_dir, self.model, self.optimizer = checkpoint_dir, model, optimizer
        self.checkpointer: FsdpShardCheckpointer | None = None
        self.step = 0

    def load(self) -> None:
        """The second snippet."""
        checkpoint_dir, model, optimizer = self.checkpoint_dir, self.model, self.optimizer
        # fmt: off
        checkpointer = FsdpShardCheckpointer(checkpoint_dir)
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state_dict = {
                "model": model.state_dict(),
                "step": 0,
            }
            storage_reader = checkpointer.get_storage_reader()
            if not storage_reader:
                return
            dist_cp.load_state_dict(
                state_dict=state_dict,
                storage_reader=storage_reader,
            )
            model.load_state_dict(state_dict["model"])
            optim_state = load_sharded_optimizer_state_dict(
                model_state_dict=state_dict["model"],
                optimizer_key="optim",
                storage_reader=storage_reader,
            )
            flattened_osd = FSDP.optim_state_dict_to_load(
                model, optimizer, optim_state["optim"]
            )
            optimizer.load_state_dict(flattened_osd)
        # fmt: on
        self.step = state_dict["step"]

    def save(self, step: int, save_memory_interval: int, save_storage_interval: int) -> None:
        """The first snippet."""
        checkpoint_dir, model, optimizer = self.checkpoint_dir, self.model, self.optimizer
        checkpointer = self.checkpointer or FsdpShardCheckpointer(checkpoint_dir)
        self.checkpointer = checkpointer
        # fmt: off
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state_dict = {
                "model": model.state_dict(),
                "optim": FSDP.optim_state_dict(model, optimizer),
                "step": step,
            }
            ckpt_dir = os.path.join(checkpoint_dir, str(step))  # noqa: PTH118
            if step % save_memory_interval == 0:
                checkpointer.save_checkpoint(
                    step, state_dict, ckpt_dir, storage_type=StorageType.MEMORY
                )
            if step % save_storage_interval == 0:
                checkpointer.save_checkpoint(
                    step, state_dict, ckpt_dir, storage_type=StorageType.DISK
                )
        # fmt: on


class DTensorSaver:
    """The same for `fully_shard`, whose states are of DTensors."""

    def __init__(self, checkpoint_dir: str, model: Any, optimizer: Any) -> None:  # noqa: ANN401
        self.model, self.optimizer = model, optimizer
        self.checkpointer = FsdpShardCheckpointer(checkpoint_dir)
        self.step = 0

    def load(self) -> None:
        """With torch's functions for states."""
        reader = self.checkpointer.get_storage_reader()
        if reader is None:
            return
        model, optim = states.get_state_dict(self.model, self.optimizer)
        state_dict: dict[str, Any] = {"model": model, "optim": optim, "step": 0}
        dist_cp.load(state_dict, storage_reader=reader)
        states.set_state_dict(
            self.model, self.optimizer, model_state_dict=model, optim_state_dict=optim
        )
        self.step = state_dict["step"]

    def save(self, step: int, save_memory_interval: int, save_storage_interval: int) -> None:
        """In memory, and to disk under the name of the step."""
        model, optim = states.get_state_dict(self.model, self.optimizer)
        state_dict = {"model": model, "optim": optim, "step": step}
        for every, kind in (
            (save_memory_interval, StorageType.MEMORY), (save_storage_interval, StorageType.DISK),
        ):  # fmt: skip
            if step % every == 0:
                self.checkpointer.save_checkpoint(step, state_dict, storage_type=kind)


def train(kind: str, step: int, model: Any, optimizer: torch.optim.Optimizer, name: str) -> None:  # noqa: ANN401
    """One step, whose batch depends on step and rank only."""
    rank = dist.get_rank()
    batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    os.write(1, f"{name} {kind} rank {rank} step {step} loss {loss.item().hex()}\n".encode())


def whole(model: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """The whole model, on rank 0: put together from rows, as FSDP's own way reads freed memory on
    CPUs (torch 2.13)."""
    sharded = FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    with sharded if isinstance(model, FSDP) else nullcontext():
        state = model.state_dict()
    rows = {
        name: value.local_shards()[0].tensor if hasattr(value, "local_shards") else value.to_local()
        for name, value in state.items()
    }
    everything: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everything, rows)
    return {name: torch.cat([rank[name] for rank in everything]) for name in state}


def main() -> None:
    """Train, save at every step, resume from the newest save."""
    warnings.simplefilter("ignore")
    kind, folder, steps, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    deeds = [deed.split(":") for deed in sys.argv[5].split(",")]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    model, optimizer = made(kind)
    saver: GuideSaver | DTensorSaver = (GuideSaver if kind == "guide" else DTensorSaver)(
        folder, model, optimizer
    )
    saver.load()
    for step in range(saver.step + 1, steps + 1):
        train(kind, step, model, optimizer, f"attempt-{attempt}")
        saver.save(step, 1, every)
        for deed in deeds:
            if deed[:3] == [attempt, str(rank), str(step)]:
                assert saver.checkpointer is not None
                do(*deed[3:], save=saver.checkpointer._memory_save)
    if saver.checkpointer is not None:
        saver.checkpointer.wait_latest_checkpoint()
    model, optimizer = made(kind)
    wholes = {}
    for step in range(1, steps + 1):
        train(kind, step, model, optimizer, "undisturbed")
        wholes[step] = whole(model)
    if rank == 0:
        torch.save(wholes, Path(folder) / WHOLES)
    end_rank()


if __name__ == "__main__":
    main()
