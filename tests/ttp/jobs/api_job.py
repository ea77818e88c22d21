"""A Megatron-style loop of its own: two data-parallel shards on two ranks each, through ttp.api.

python api_job.py FOLDER STEPS "RANK:STEP"
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import FileRecord
from relkit.ttp import api as ttp

SIZE = 64


class Shards:
    """Momentum SGD whose momentum is cut in two; each rank holds both, and owns one."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.weights = torch.linspace(-1, 1, SIZE)
        self.momentum = torch.zeros(SIZE)
        self.gradients = torch.zeros(SIZE)
        self.rank, self.world_size, self.step = rank, world_size, 0

    def update(self) -> None:
        self.momentum.mul_(0.9).add_(self.gradients)
        self.weights.sub_(0.01 * self.momentum)


def save(request: ttp.SaveRequest, model: Shards) -> Sequence[FileRecord]:
    part = SIZE // model.world_size
    whole = torch.zeros(SIZE)
    (group,) = request.plan.groups
    for shard, holder in enumerate(group.holders):
        if holder == request.rank:
            whole[shard * part : (shard + 1) * part] = model.momentum[
                shard * part : (shard + 1) * part
            ]
    if request.group is not None:
        request.group.allreduce([whole]).wait()
    if request.rank != group.writer:
        return []
    state = {"weights": model.weights, "momentum": whole, "step": request.step}
    return [iteration_folder.write_file(request.folder, "state.pt", lambda out: _dump(state, out))]


def _dump(state: dict[str, object], out: object) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    out.write(buffer.getvalue())  # type: ignore[attr-defined]


def roll_forward(step: int, model: Shards) -> None:
    model.update()
    model.step = step


@ttp.persist
def train(model: Shards, steps: int, victim: tuple[int, int]) -> None:
    while model.step < steps:
        ttp.phase("forward")
        model.gradients = model.weights * (model.rank + 1) + model.step
        dist.all_reduce(model.gradients)
        ttp.gradients_ready()
        if (model.rank, model.step + 1) == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        ttp.begin_update()
        model.update()
        model.step += 1
        ttp.end_update(model.step)
        ttp.set_save_args(model)


def main() -> None:
    root, steps = Path(sys.argv[1]), int(sys.argv[2])
    number, _, at = sys.argv[3].partition(":")
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    victim = (int(number), int(at)) if first and at else (-1, -1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = Shards(rank, world_size)
    latest = iteration_folder.latest(root)
    if latest is not None:
        folder = iteration_folder.existing(root, latest)
        state = torch.load(folder / "state.pt", weights_only=True)
        model.weights, model.momentum = state["weights"], state["momentum"]
        model.step = state["step"]
    ttp.init(rank, world_size, root, step=model.step)
    ttp.set_replica_map([ttp.replica_map("tp0 pp0", range(world_size))])
    ttp.register_save_handler(save)
    ttp.register_roll_forward_handler(roll_forward)
    ttp.set_save_args(model)
    train(model, steps, victim)
    os.write(1, f"rank {rank} {ttp.get_ttp_switch()} {float(model.weights.sum()).hex()}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
