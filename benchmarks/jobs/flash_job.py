"""A rank of benchmarks.checkpoints.flash: the same steps without saves, and with them by one way.

It imports relkit only to save with it: peers have virtual environments of their own.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

_TENSORS = 100
_STATES = 3  # a parameter, and Adam's two moments
_CURVE = (0.5, 1.0, 2.0, 5.0, 10.0)  # step time, in copies' times
_CURVE_STEPS = 3


class Loop:
    """A model of many parameters, its optimizer, and steps of a fixed time of compute.

    Args:
        size_bytes: of parameters and optimizer states; compute_s: of each step.
    """

    def __init__(self, size_bytes: int, compute_s: float) -> None:
        each = size_bytes // (4 * _STATES * _TENSORS)
        self.parameters = [torch.nn.Parameter(torch.full((each,), 0.5)) for _ in range(_TENSORS)]
        gradient = torch.ones(each)
        for parameter in self.parameters:
            parameter.grad = gradient
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)
        self._compute_s, self._matrix = compute_s, torch.ones(512, 512)

    def state(self, number: int) -> dict[str, Any]:
        """What is saved."""
        model = {f"p{n}": parameter.detach() for n, parameter in enumerate(self.parameters)}
        return {"model": model, "optimizer": self.optimizer.state_dict(), "step": number}

    def step(self, number: int, way: Way | None) -> dict[str, float]:
        """A save of the state there is, compute, update."""
        dist.barrier()
        began = time.perf_counter()
        if way is not None:
            way.save(number, self.state(number))
        called = time.perf_counter()
        products = 0
        while time.perf_counter() - called < self._compute_s:
            self._matrix @ self._matrix
            products += 1
        computed = time.perf_counter()
        self.optimizer.step()
        ended = time.perf_counter()
        return {"call_s": called - began, "update_s": ended - computed, "products": products}


class Way:
    """A way to save, none by default.

    Args:
        folder: on disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: dict[str, Any]) -> object:
        """Save a state; what the call takes, the loop is blocked."""

    def settle(self) -> None:
        """Wait for all that is under way."""

    def load(self) -> dict[str, Any]:
        """The newest state, from memory where it can be."""
        return {}


class Relkit(Way):
    """relkit, into memory."""

    def __init__(self, folder: Path) -> None:
        ddp = importlib.import_module("relkit.flash_checkpoint.ddp")
        self._memory = ddp.StorageType.MEMORY
        self.checkpointer = ddp.DdpCheckpointer(folder / "relkit")
        self.checkpointer.load_checkpoint()

    def save(self, step: int, state: dict[str, Any]) -> object:
        """See Way."""
        return self.checkpointer.save_checkpoint(step, state, storage_type=self._memory)

    def settle(self) -> None:
        """See Way."""
        self.checkpointer.wait_latest_checkpoint()

    def load(self) -> dict[str, Any]:
        """See Way."""
        return dict(self.checkpointer.load_checkpoint())


class TorchSave(Way):
    """torch.save by rank 0, the others waiting."""

    def save(self, step: int, state: dict[str, Any]) -> object:
        """See Way."""
        if dist.get_rank() == 0:
            torch.save(state, self.folder / "torch.pt")
        dist.barrier()
        return None


class DcpAsync(Way):
    """torch's asynchronous distributed checkpoint."""

    _pending: Any = None

    def save(self, step: int, state: dict[str, Any]) -> object:
        """See Way."""
        saver = importlib.import_module("torch.distributed.checkpoint.state_dict_saver")
        self._step = step
        self._pending = saver.async_save(state, checkpoint_id=self.folder / f"dcp-{step}")
        return self._pending

    def settle(self) -> None:
        """See Way."""
        if self._pending is not None:
            self._pending.result()
            dist.barrier()
            if dist.get_rank() == 0:
                shutil.rmtree(self.folder / f"dcp-{self._step}")
            self._pending = None


class Dlrover(Way):
    """DLRover's flash checkpoint of DDP into memory, every rank its own state."""

    def __init__(self, folder: Path) -> None:
        ddp = importlib.import_module("dlrover.trainer.torch.flash_checkpoint.ddp")
        ranks = dist.get_world_size()
        self._memory = ddp.StorageType.MEMORY
        self._checkpointer = ddp.DdpCheckpointer(
            str(folder / "dlrover"), local_shard_num=ranks, global_shard_num=ranks
        )

    def save(self, step: int, state: dict[str, Any]) -> object:
        """See Way."""
        return self._checkpointer.save_checkpoint(step, state, storage_type=self._memory)

    def load(self) -> dict[str, Any]:
        """See Way."""
        return dict(self._checkpointer.load_checkpoint())


class LmResiliency(Way):
    """lm-resiliency's checkpoints in memory, as references to tensors and without replicas, which
    is the quickest it can."""

    def __init__(self, folder: Path) -> None:
        module = importlib.import_module("lm_resiliency.checkpointing.manager")
        config = importlib.import_module("lm_resiliency.checkpointing.config")
        self._manager = module.InMemoryCheckpointManager(
            config.InMemoryCkptConfig(
                interval=1, disk_flush_interval=0, disk_folder=str(folder / "lmr")
            ),
            SimpleNamespace(has_natural_replicas=True),
        )

    def save(self, step: int, state: dict[str, Any]) -> object:
        """See Way."""
        tensors = list(state["model"].values())
        for kept in state["optimizer"]["state"].values():
            tensors += [kept["exp_avg"], kept["exp_avg_sq"]]
        return self._manager.save_tensors(tensors, step)

    def settle(self) -> None:
        """See Way."""
        self._manager.maybe_wait()


WAYS: dict[str, type[Way]] = {
    "relkit": Relkit,
    "torch.save": TorchSave,
    "dcp.async_save": DcpAsync,
    "dlrover": Dlrover,
    "lm-resiliency": LmResiliency,
}


class _OnDevice(torch.optim.Optimizer):
    """An update that costs this host nothing, as where a device makes it."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ANN401
        """Change the first element of each parameter."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.view(-1)[:1].add_(1e-3)


def curve(loop: Loop, way: Way) -> dict[str, Any]:
    """What saving at every step costs steps of several lengths, while this host only waits for its
    device: seconds of a copy, and the share of the step that is lost."""
    update = _OnDevice(loop.parameters)
    update.step()
    number = iter(range(1_000_000, 2_000_000))
    copies = [_seconds(lambda: _whole(way, loop, next(number))) for _ in range(6)]
    copy_s = _slowest(statistics.median(copies[2:]))
    lost = {}
    for copies_long in _CURVE:
        took: dict[bool, list[float]] = {False: [], True: []}
        for saves in (False, True) * _CURVE_STEPS:

            def step(saves: bool = saves, wait_s: float = copies_long * copy_s) -> None:
                if saves:
                    way.save(next(number), loop.state(0))
                time.sleep(wait_s)
                update.step()

            dist.barrier()
            took[saves].append(_seconds(step))
            way.settle()
        plain, saving = (statistics.median(took[saves]) for saves in (False, True))
        lost[f"{copies_long:g} copies"] = round(_slowest(saving / plain - 1), 4)
    return {"copy_s": round(copy_s, 4), "lost_share_of_a_step": lost}


def _whole(way: Way, loop: Loop, number: int) -> None:
    way.save(number, loop.state(0))
    way.settle()


def restore(loop: Loop, way: Way) -> dict[str, Any]:
    """Seconds of a restore, and of a plain copy of the same tensors by as many threads: into new
    memory, as a restore has to, and into memory that is in use. In turn, the median of each."""
    tensors = [*loop.state(0)["model"].values()]
    for kept in loop.optimizer.state.values():
        tensors += [kept["exp_avg"], kept["exp_avg_sq"]]
    used = [tensor.clone() for tensor in tensors]
    took: dict[str, list[float]] = {"restore_s": [], "new_copy_s": [], "copy_s": []}
    for _ in range(5):
        dist.barrier()
        took["restore_s"].append(_seconds(way.load))
        dist.barrier()
        took["new_copy_s"].append(_seconds(lambda: [tensor.clone() for tensor in tensors]))
        dist.barrier()
        took["copy_s"].append(_seconds(lambda: [a.copy_(b) for a, b in zip(used, tensors)]))  # noqa: B905
    return {name: round(_slowest(statistics.median(took[name])), 4) for name in took}


def _seconds(work: Any) -> float:  # noqa: ANN401
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _slowest(seconds: float) -> float:
    """The largest of all ranks."""
    tensor = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor[0])


def _saves(loop: Loop, way: Way, rounds: int) -> Iterator[tuple[dict[str, float], ...]]:
    """A step without a save and one with it, in turn."""
    for number in range(rounds):
        yield loop.step(2 * number, None), loop.step(2 * number + 1, way)
        way.settle()
        dist.barrier()


def main() -> None:
    """Print one JSON line on rank 0."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    size_bytes, rounds, compute_s = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    loop = Loop(size_bytes, compute_s)
    way = WAYS[name](folder)
    loop.optimizer.step()
    steps = list(_saves(loop, way, rounds))
    result: dict[str, Any] = {}
    if name == "relkit" and len(sys.argv) > 6:
        result = {"restore": restore(loop, way), "curve": curve(loop, way)}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, steps)
    if dist.get_rank() == 0:
        os.write(1, (f"RESULT {json.dumps(summary(everyone) | result)}\n").encode())
    dist.destroy_process_group()


def summary(everyone: list[list[tuple[dict[str, float], ...]]]) -> dict[str, Any]:
    """How long the loop was blocked by each save: in the call, and in an update beyond the median
    of those without a save, on the slowest rank; and how much was computed beside it."""
    plain, saving = ([[pair[kind] for pair in steps] for steps in everyone] for kind in (0, 1))
    plain_s = statistics.median(one["update_s"] for steps in plain for one in steps)
    products = statistics.median(one["products"] for steps in plain for one in steps)
    beside = statistics.median(one["products"] for steps in saving for one in steps)
    return {
        "blocked_s": [
            max(one["call_s"] + max(0.0, one["update_s"] - plain_s) for one in ranks)
            for ranks in zip(*saving)  # noqa: B905  no newer Python is asked of a peer
        ],
        "computed_beside_it": round(beside / products, 3),
    }


if __name__ == "__main__":
    main()
