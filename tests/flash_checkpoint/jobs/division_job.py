"""A job of four ranks whose second attempt divides the model in another way.

    division_job.py FOLDER

First two groups of ranks have the whole model each (HSDP, 2 x 2), then all four have one together.
Both attempts save every step in memory; step 2 is also saved to disk. All ranks die after step 4.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from relkit.flash_checkpoint.fsdp import FsdpShardCheckpointer, StorageType
from tests.flash_checkpoint.jobs.ddp_job import do
from tests.job_end import end_rank

# Its functions are re-exported in a way that is not for type checkers.
dist_cp: Any = torch.distributed.checkpoint


def of_parameters(optim: Any) -> dict[str, Any]:  # noqa: ANN401
    """The optimizer's state, by parameter."""
    return dict(optim["state"])


def say(what: str, step: int, state: Any) -> None:  # noqa: ANN401
    """A checksum of the whole state, which all ranks put together."""
    digest = hashlib.sha256()
    for name in sorted(state):
        values = state[name] if isinstance(state[name], dict) else {"": state[name]}
        for key in sorted(values):
            value = values[key]
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            digest.update(f"{name} {key}".encode() + whole.numpy().tobytes())
    if dist.get_rank() == 0:
        os.write(1, f"{what} {step} {digest.hexdigest()}\n".encode())


def main() -> None:
    """Train, save, die; resume."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    shape, names = ((2, 2), ("whole", "part")) if is_first else ((4,), ("part",))
    mesh = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
    torch.manual_seed(7)
    model: Any = fully_shard(torch.nn.Linear(16, 32), mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checkpointer = FsdpShardCheckpointer(sys.argv[1])
    reader = checkpointer.get_storage_reader()
    begun = 0
    if reader is not None:
        net, optim = states.get_state_dict(model, optimizer)
        loaded: dict[str, Any] = {"model": net, "optim": optim, "step": 0}
        dist_cp.load(loaded, storage_reader=reader)
        states.set_state_dict(model, optimizer, model_state_dict=net, optim_state_dict=optim)
        begun = int(loaded["step"])
        net, optim = states.get_state_dict(model, optimizer)
        say("loaded", begun, {**net, **of_parameters(optim)})
    for step in range(begun + 1, 7):
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        net, optim = states.get_state_dict(model, optimizer)
        say("saved", step, {**net, **of_parameters(optim)})
        state = {"model": net, "optim": optim, "step": step}
        save = checkpointer.save_checkpoint(step, state, storage_type=StorageType.MEMORY)
        if step == 2:
            checkpointer.save_checkpoint(step, state).wait()
        if is_first and step == 4:
            do("kill-saved", save=save)
    checkpointer.wait_latest_checkpoint()
    end_rank()


if __name__ == "__main__":
    main()
