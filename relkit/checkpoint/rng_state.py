"""The state of every random stream of a process: captured at a step boundary, restored on resume.

Beside the streams of Python, numpy and torch there is the region's: where tensor ranks hold
different parts (attention heads, pieces of the sequence) dropout draws from a stream of its own, as
in Megatron. A loop without tensor parallelism leaves it empty.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
            # Megatron wants one; on a CPU run the stream of the device is torch's own.
            "cuda_rng_state": _tensor(self.cuda or self.torch),
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
        of_cpu, of_device = _bytes(plain["torch_rng_state"]), _bytes(plain["cuda_rng_state"])
        return cls(
            python=(version, tuple(numbers), gauss),
            numpy=(name, tuple(int(number) for number in key), position, has_gauss, kept),
            torch=of_cpu,
            tracker=_bytes(plain["rng_tracker_states"][REGION_NAME]),
            cuda=b"" if of_device == of_cpu else of_device,
        )


class RegionStream:
    """State of the tensor region's stream, and where it is drawn: as global as torch's own."""

    device = torch.device("cpu")
    state: Tensor | None = None


def capture() -> RngState:
    """The state of all streams now."""
    name, key, position, has_gauss, kept = np.random.get_state(legacy=True)
    numbers = np.asarray(key, dtype=np.uint32).tolist()
    on_gpu = RegionStream.device.type == "cuda"
    return RngState(
        python=random.getstate(),
        numpy=(str(name), tuple(numbers), int(position), int(has_gauss), float(kept)),
        torch=_bytes(torch.get_rng_state()),
        tracker=b"" if RegionStream.state is None else _bytes(RegionStream.state),
        cuda=_bytes(torch.cuda.get_rng_state(RegionStream.device)) if on_gpu else b"",
    )


def restore(state: RngState) -> None:
    """Put all streams where they were; the device stays the one of the last `seed_all`."""
    random.setstate(state.python)
    name, key, position, has_gauss, kept = state.numpy
    np.random.set_state((name, np.array(key, dtype=np.uint32), position, has_gauss, kept))
    torch.set_rng_state(_tensor(state.torch))
    RegionStream.state = _tensor(state.tracker) if state.tracker else None
    if state.cuda and RegionStream.device.type == "cuda":
        torch.cuda.set_rng_state(_tensor(state.cuda), RegionStream.device)


def _bytes(state: Tensor) -> bytes:
    return state.cpu().numpy().tobytes()


def _tensor(state: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(state), dtype=torch.uint8)
        if state
        else torch.empty(0, dtype=torch.uint8)
    )
