"""Random streams: seeded by a rank's place, and drawn from where tensor ranks differ.

As in Megatron, ranks that hold the same thing draw the same numbers: the default stream is seeded
by the pipeline stage alone, so tensor and data ranks share it. Where tensor ranks hold different
parts (attention heads, pieces of the sequence) dropout draws from a second stream, the region's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from relkit.checkpoint.rng_state import RegionStream
from relkit.trainer.core.mesh import Mesh

STAGE_STRIDE = 100
REGION_OFFSET = 2718


def seed_all(seed: int, mesh: Mesh) -> None:
    """Seed every stream of this process by the rank's place in the mesh.

    Args:
        seed: of the job, at least 0.
    """
    seed += STAGE_STRIDE * mesh.pipeline.rank
    random.seed(seed)
    np.random.seed(seed % 2**32)
    RegionStream.device = mesh.device
    torch.manual_seed(seed + REGION_OFFSET + mesh.tensor.rank)
    RegionStream.state = _get_state()
    torch.manual_seed(seed)


@contextmanager
def fork() -> Iterator[None]:
    """Within it, this process draws from the region's stream; the default one stands still."""
    assert RegionStream.state is not None, "seed_all comes before the first dropout"
    outside = _get_state()
    _set_state(RegionStream.state)
    try:
        yield
    finally:
        RegionStream.state = _get_state()
        _set_state(outside)


class ForkedRng(nn.Module):
    """A module without parameters whose dropout draws from the region's stream."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the module makes of its inputs."""
        if not self.training:
            plain: Tensor = self.inner(*inputs)
            return plain
        with fork():
            output: Tensor = self.inner(*inputs)
        return output


def _get_state() -> Tensor:
    if RegionStream.device.type == "cuda":
        return torch.cuda.get_rng_state(RegionStream.device)
    return torch.get_rng_state()


def _set_state(state: Tensor) -> None:
    if RegionStream.device.type == "cuda":
        torch.cuda.set_rng_state(state, RegionStream.device)
    else:
        torch.set_rng_state(state)
