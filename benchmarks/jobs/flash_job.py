"""A rank of benchmarks.flash: the same step without a save, and with one by each way in turn."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save

from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType

_TENSORS = 100
_STATES = 3  # a parameter, and Adam's two moments
Save = Callable[[int, dict[str, Any]], object]


class Ways:
    """Each way to save, and how to wait until it is over.

    Args:
        folder: on disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkpointer = DdpCheckpointer(folder / "relkit")
        self._pending: Any = None

    def memory(self, step: int, state: dict[str, Any]) -> object:
        """relkit, into memory."""
        return self._checkpointer.save_checkpoint(step, state, storage_type=StorageType.MEMORY)

    def torch_save(self, step: int, state: dict[str, Any]) -> object:
        """torch.save, by rank 0, the others waiting."""
        if dist.get_rank() == 0:
            torch.save(state, self._folder / f"torch-{step}.pt")
        dist.barrier()
        return None

    def dcp_async(self, step: int, state: dict[str, Any]) -> object:
        """torch's asynchronous distributed checkpoint."""
        self._pending = async_save(state, checkpoint_id=self._folder / f"dcp-{step}")
        return self._pending

    def settle(self) -> None:
        """Wait for all that is under way, and free the disk."""
        self._checkpointer.wait_latest_checkpoint()
        if self._pending is not None:
            self._pending.result()
        dist.barrier()
        if dist.get_rank() == 0:
            for path in self._folder.glob("torch-*"):
                path.unlink()
            for path in self._folder.glob("dcp-*"):
                shutil.rmtree(path)
        dist.barrier()


def main() -> None:
    """Print one JSON line on rank 0."""
    folder, size_bytes, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    compute_s = float(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    each = size_bytes // (4 * _STATES * _TENSORS)
    parameters = [torch.nn.Parameter(torch.full((each,), 0.5)) for _ in range(_TENSORS)]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    gradient = torch.ones(each)
    for parameter in parameters:
        parameter.grad = gradient
    ways = Ways(folder)
    optimizer.step()
    matrix = torch.ones(512, 512)

    def step(number: int, save: Save | None) -> dict[str, float]:
        """One step of the loop: a save of the state there is, compute, update."""
        dist.barrier()
        began = time.perf_counter()
        if save is not None:
            model = {f"p{n}": parameter.detach() for n, parameter in enumerate(parameters)}
            save(number, {"model": model, "optimizer": optimizer.state_dict(), "step": number})
        called = time.perf_counter()
        products = 0
        while time.perf_counter() - called < compute_s:
            matrix @ matrix
            products += 1
        computed = time.perf_counter()
        optimizer.step()
        return {
            "call_s": called - began,
            "update_s": time.perf_counter() - computed,
            "products": products,
        }

    names: dict[str, Save | None] = {
        "none": None,
        "relkit": ways.memory,
        "torch.save": ways.torch_save,
        "dcp.async_save": ways.dcp_async,
    }
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    number = 0
    for _ in range(rounds):
        for name, save in names.items():
            number += 1
            seen[name].append(step(number, save))
            ways.settle()
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, seen)
    if dist.get_rank() == 0:
        os.write(1, (json.dumps(_summary(everyone)) + "\n").encode())
    dist.destroy_process_group()


def _summary(everyone: list[dict[str, list[dict[str, float]]]]) -> dict[str, Any]:
    """Per way: how long the loop was blocked (in the call, and in an update beyond the plain one's
    median), the slowest rank of each round; and how much less was computed beside it."""
    result: dict[str, Any] = {}
    plain_s = statistics.median(one["update_s"] for seen in everyone for one in seen["none"])
    products = statistics.median(one["products"] for seen in everyone for one in seen["none"])
    for name in everyone[0]:
        rounds = list(zip(*(seen[name] for seen in everyone), strict=True))
        blocked = [
            max(one["call_s"] + max(0.0, one["update_s"] - plain_s) for one in ranks)
            for ranks in rounds
        ]
        computed = statistics.median(one["products"] for ranks in rounds for one in ranks)
        result[name] = {
            "first_blocked_s": round(blocked[0], 4),
            "blocked_s": round(statistics.median(blocked[1:] or blocked), 4),
            "all_blocked_s": [round(one, 4) for one in blocked],
            "computed_beside_it": round(computed / products, 3),
        }
    return result


if __name__ == "__main__":
    main()
