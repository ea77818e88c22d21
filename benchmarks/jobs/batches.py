"""A torch DataLoader whose data set is slow where a fault is injected into it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from relkit.faults import Injector


class _Batches(Dataset[torch.Tensor]):
    def __init__(self, steps: int, injector: Injector) -> None:
        self._steps, self._injector = steps, injector
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> torch.Tensor:
        self._injector.before_batch(step, self._lock)
        return torch.zeros(1)


def batches(steps: int, injector: Injector) -> DataLoader[Any]:
    """One small batch a step, in order, read in the rank itself."""
    return DataLoader(_Batches(steps, injector), batch_size=None)
