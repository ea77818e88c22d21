"""The state of every random generator of a process, as plain values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's generators, those of all GPUs in use included."""
    name, key, position, has_gauss, kept = np.random.get_state(legacy=True)
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpus = torch.cuda.get_rng_state_all() if in_use else []
    return {
        "python": random.getstate(),
        "numpy": (str(name), _bytes(key), int(position), int(has_gauss), float(kept)),
        "torch": _bytes(torch.get_rng_state().numpy()),
        "cuda": [_bytes(state.numpy()) for state in gpus],
    }


def restore(state: dict[str, Any]) -> None:
    """Put all generators where they were; GPUs that this process does not have are left out."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, key, position, has_gauss, kept = state["numpy"]
    np.random.set_state((name, np.frombuffer(key, dtype=np.uint32), position, has_gauss, kept))
    torch.set_rng_state(_tensor(state["torch"]))
    if torch.cuda.is_available():
        for device, gpu in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(_tensor(gpu), device)


def _bytes(numbers: Any) -> bytes:  # noqa: ANN401
    return bytes(np.ascontiguousarray(numbers).tobytes())


def _tensor(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
