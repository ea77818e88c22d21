"""How large the states of a training loop will be, told by its optimizers before the first save."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer


def optimizers() -> list[Optimizer]:
    """All optimizers of this process that have parameters."""
    # By type(), because isinstance would wake up objects that only stand for others.
    return [
        held
        for held in gc.get_objects()
        if issubclass(type(held), Optimizer) and getattr(held, "param_groups", None)
    ]


def expected_bytes(trained: Iterable[Optimizer]) -> int:
    """Size of all parameters and of what the optimizers keep of each, bytes on this rank.

    Before the first step an optimizer keeps nothing yet: what it will keep is told by its options.
    """
    seen: set[int] = set()
    return sum(_bytes_of(optimizer, seen) for optimizer in trained)


def _bytes_of(optimizer: Optimizer, seen: set[int]) -> int:
    total = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            kept = optimizer.state.get(parameter)
            size_bytes = _size_bytes(parameter)
            total += size_bytes
            if isinstance(kept, dict) and kept:
                total += sum(map(_size_bytes, _tensors(kept.values())))
            elif parameter.requires_grad:
                total += size_bytes * _moments(group)
    return total


def _moments(group: dict[str, object]) -> int:
    """How many tensors of a parameter's size torch's optimizers keep, by their options."""
    if "betas" in group:
        return 3 if group.get("amsgrad") else 2
    return 1 if group.get("momentum") or "alpha" in group or "rho" in group else 0


def _tensors(values: Collection[object]) -> Iterator[Tensor]:
    return (value for value in values if isinstance(value, Tensor))


def _size_bytes(tensor: Tensor) -> int:
    # A DTensor has no storage of its own: what it holds of this rank is a tensor inside it.
    local = getattr(tensor, "_local_tensor", tensor)
    if local.layout is not torch.strided:
        return 0
    return int(local.numel()) * int(local.element_size())
