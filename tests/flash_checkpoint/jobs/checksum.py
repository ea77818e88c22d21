"""One number for a whole state, for processes that cannot compare states themselves."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import torch


def checksum(state: object) -> int:
    """CRC-32 of a state: of its names, its plain values, and the bytes of its tensors."""
    total = 0
    for part in _parts(state, ""):
        total = zlib.crc32(part, total)
    return total


def _parts(state: object, name: str) -> Iterator[bytes]:
    if isinstance(state, torch.Tensor):
        yield name.encode()
        yield state.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _parts(value, f"{name}/{key}")
    elif isinstance(state, list | tuple):
        for number, value in enumerate(state):
            yield from _parts(value, f"{name}/{number}")
    else:
        yield f"{name}={state!r}".encode()
