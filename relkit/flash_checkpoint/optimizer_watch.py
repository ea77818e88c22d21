"""Knows which tensors only optimizers change, and calls back before they do."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook


class OptimizerWatch:
    """A hook before each step of every torch optimizer of this process, until `close`.

    Args:
        before_step: called before each step; before_first: called before the first step of all.
    """

    def __init__(
        self, before_step: Callable[[], None], before_first: Callable[[], None] = lambda: None
    ) -> None:
        self._before_step, self._before_first = before_step, before_first
        self._seen: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._handle = register_optimizer_step_pre_hook(self._hook)

    def _hook(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:  # noqa: ANN401
        if not self._seen:
            self._before_first()
        self._seen.add(optimizer)
        self._before_step()

    def storages(self) -> frozenset[int]:
        """Addresses of the storages of parameters and states of all optimizers that made a step."""
        tensors = [
            tensor
            for optimizer in tuple(self._seen)
            for group in optimizer.param_groups
            for tensor in group["params"]
        ]
        tensors += [
            value
            for optimizer in tuple(self._seen)
            for state in tuple(optimizer.state.values())
            if isinstance(state, dict)
            for value in state.values()
            if isinstance(value, Tensor)
        ]
        # A DTensor has no storage of its own: what it holds of this rank is a tensor inside it.
        local = (getattr(tensor, "_local_tensor", tensor) for tensor in tensors)
        return frozenset(t.untyped_storage().data_ptr() for t in local if t.device.type == "cpu")

    def close(self) -> None:
        """Remove the hook."""
        self._handle.remove()
