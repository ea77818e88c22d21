"""Buffers of a model that are saved with its weights, and change outside of the update.

megatron-core moves the experts' bias of a router (--moe-router-enable-expert-bias) once gradients
are reduced, which is before the step is committed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Buffers:
    """Those of all chunks.

    Args:
        model: its chunks.
    """

    def __init__(self, model: Sequence[nn.Module]) -> None:
        self._places = [
            (module, name)
            for chunk in model
            for module in chunk.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and name not in module._non_persistent_buffers_set
        ]

    def copied(self) -> tuple[Tensor, ...]:
        """What they hold now."""
        return tuple(getattr(module, name).detach().clone() for module, name in self._places)

    @torch.no_grad()
    def put_back(self, copies: Sequence[Tensor]) -> None:
        """Have them hold what they held.

        Args:
            copies: from `copied`.
        """
        for (module, name), copy in zip(self._places, copies, strict=True):
            getattr(module, name).copy_(copy)
