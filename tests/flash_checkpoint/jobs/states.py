"""States as training loops save them, and savers and loaders of them for tests."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relkit.flash_checkpoint import memory_loader
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.slots.native_copy import CopyPool
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from relkit.flash_checkpoint.slots.slot_format import Owner, job_mark

OWNER = Owner(1, 4, job_mark("a job"))


def same(one: object, other: object) -> bool:
    """Whether both are equal in every bit, and of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return one.contiguous().view(-1).view(torch.uint8).equal(
            other.contiguous().view(-1).view(torch.uint8)
        )  # fmt: skip
    if isinstance(one, (np.ndarray, np.generic)) and isinstance(other, (np.ndarray, np.generic)):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def rich_state(step: int) -> dict[str, Any]:
    """A state with every kind of value that it may hold."""
    tied = torch.arange(7.0) + step
    return {
        "step": step,
        "model": OrderedDict(weight=tied, tied=tied),
        "half": torch.ones(3, dtype=torch.bfloat16) * step,
        "scalar": torch.tensor(step, dtype=torch.int64),
        "turned": torch.arange(6).reshape(2, 3).T,
        "complex": torch.tensor([1 + 2j, step], dtype=torch.complex64),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "rates": [1e-3 / (step + 1), float("inf"), -0.0, 2**70],
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "betas": [(0.9, 0.99)]},
        "milestones": Counter({30: 1, 80: 2}),
        "rng": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
        "number": np.float32(0.1),
        "raw": b"\x00\xff",
        "set": {1},
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "none": None,
        "text": "ü\ud800\n",
    }  # fmt: skip


def saver_in(folder: Path, owner: Owner = OWNER) -> MemorySaver:
    """A saver of rank 1 of 4, for the caller to close."""
    return MemorySaver(folder / "rank-1.slots", owner, threads=2)


def loaded(folder: Path, place: int = 0) -> Any:  # noqa: ANN401
    """The state in the newest whole slot, or in an older one."""
    file = SlotFile.open(folder / "rank-1.slots", OWNER)
    pool = CopyPool(1)
    try:
        return memory_loader.load(file, file.whole()[place], pool)
    finally:
        pool.close()
        file.close()
