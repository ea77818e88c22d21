"""Random streams: seeded by a rank's place, captured at a step boundary, restored on resume.

As in Megatron, ranks that hold the same thing draw the same numbers: the default stream is seeded
by the pipeline stage alone, so tensor and data ranks share it. Where tensor ranks hold different
parts (attention heads, pieces of the sequence) dropout draws from a second stream, the region's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relkit.trainer.mesh import Mesh

STAGE_STRIDE = 100
REGION_OFFSET = 2718
REGION_NAME = "model-parallel-rng"


@dataclass(frozen=True, slots=True)
class RngState:
    """All random streams of a process; equal when their next numbers are.

    Args:
        python: what `random.getstate` returns.
        numpy: algorithm, key, position, and the kept Gaussian (a flag and a value).
        torch: state of the CPU generator.
        tracker: state of the tensor region's stream; empty before `seed_all`.
        cuda: state of the GPU's generator; empty on a CPU run.
    """

    python: tuple[Any, ...]
    numpy: tuple[str, tuple[int, ...], int, int, float]
    torch: bytes
    tracker: bytes
    cuda: bytes = b""

    def to_plain(self) -> dict[str, Any]:
        """Under Megatron's keys, of plain types and tensors only, so that it loads weights-only."""
        return {
            "random_rng_state": self.python,
            "np_rng_state": self.numpy,
            "torch_rng_state": _tensor(self.torch),
            "cuda_rng_state": _tensor(self.cuda),
            "rng_tracker_states": {REGION_NAME: _tensor(self.tracker)},
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RngState:
        """The inverse of `to_plain`.

        Raises:
            KeyError: a stream is missing.
        """
        version, numbers, gauss = plain["random_rng_state"]
        name, key, position, has_gauss, kept = plain["np_rng_state"]
        return cls(
            python=(version, tuple(numbers), gauss),
            numpy=(name, tuple(int(number) for number in key), position, has_gauss, kept),
            torch=_bytes(plain["torch_rng_state"]),
            tracker=_bytes(plain["rng_tracker_states"][REGION_NAME]),
            cuda=_bytes(plain["cuda_rng_state"]),
        )


class _Region:
    """State of the tensor region's stream, and where it is drawn: as global as torch's own."""

    device = torch.device("cpu")
    state: Tensor | None = None


def seed_all(seed: int, mesh: Mesh) -> None:
    """Seed every stream of this process by the rank's place in the mesh.

    Args:
        seed: of the job, at least 0.
    """
    seed += STAGE_STRIDE * mesh.pipeline.rank
    random.seed(seed)
    np.random.seed(seed % 2**32)
    _Region.device = mesh.device
    torch.manual_seed(seed + REGION_OFFSET + mesh.tensor.rank)
    _Region.state = _get_state()
    torch.manual_seed(seed)


def capture() -> RngState:
    """The state of all streams now."""
    name, key, position, has_gauss, kept = np.random.get_state(legacy=True)
    numbers = np.asarray(key, dtype=np.uint32).tolist()
    on_gpu = _Region.device.type == "cuda"
    return RngState(
        python=random.getstate(),
        numpy=(str(name), tuple(numbers), int(position), int(has_gauss), float(kept)),
        torch=_bytes(torch.get_rng_state()),
        tracker=b"" if _Region.state is None else _bytes(_Region.state),
        cuda=_bytes(torch.cuda.get_rng_state(_Region.device)) if on_gpu else b"",
    )


def restore(state: RngState) -> None:
    """Put all streams where they were; the device stays the one of the last `seed_all`."""
    random.setstate(state.python)
    name, key, position, has_gauss, kept = state.numpy
    np.random.set_state((name, np.array(key, dtype=np.uint32), position, has_gauss, kept))
    torch.set_rng_state(_tensor(state.torch))
    _Region.state = _tensor(state.tracker) if state.tracker else None
    if state.cuda and _Region.device.type == "cuda":
        torch.cuda.set_rng_state(_tensor(state.cuda), _Region.device)


@contextmanager
def fork() -> Iterator[None]:
    """Within it, this process draws from the region's stream; the default one stands still."""
    assert _Region.state is not None, "seed_all comes before the first dropout"
    outside = _get_state()
    _set_state(_Region.state)
    try:
        yield
    finally:
        _Region.state = _get_state()
        _set_state(outside)


class Forked(nn.Module):
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
    if _Region.device.type == "cuda":
        return torch.cuda.get_rng_state(_Region.device)
    return torch.get_rng_state()


def _set_state(state: Tensor) -> None:
    if _Region.device.type == "cuda":
        torch.cuda.set_rng_state(state, _Region.device)
    else:
        torch.set_rng_state(state)


def _bytes(state: Tensor) -> bytes:
    return state.cpu().numpy().tobytes()


def _tensor(state: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(state), dtype=torch.uint8)
        if state
        else torch.empty(0, dtype=torch.uint8)
    )
