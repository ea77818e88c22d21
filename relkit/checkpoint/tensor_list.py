"""Names, types and shapes of all tensors in an iteration's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from relkit.checkpoint.megatron_facts import OBJECTS_OF
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile

_MAX_DEPTH = 100


def tensors_of(folder: Path) -> list[dict[str, str]]:
    """Every tensor as plain JSON: file, name (keys joined by /), dtype and shape.

    Raises:
        BadInputFile: a file is damaged, or is not plain data.
    """
    return [
        {
            "file": str(path.relative_to(folder)),
            "name": name,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": "x".join(str(size) for size in tensor.shape) or "scalar",
        }
        for path in sorted(folder.glob("mp_rank_*/*.pt"))
        for name, tensor in _walk(read_plain(path, arrays=True, objects_of=OBJECTS_OF), "", path)
    ]


def _walk(
    value: object, name: str, path: Path, depth: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    if depth > _MAX_DEPTH:
        # A list may even hold itself.
        raise BadInputFile(f"{path} is not a checkpoint: it is nested deeper than {_MAX_DEPTH}")
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, f"{name}/{_text(key)}" if name else _text(key), path, depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _walk(inner, f"{name}/{number}" if name else str(number), path, depth + 1)


def _text(key: object) -> str:
    if isinstance(key, tuple):  # the distributed optimizer's (parameter type, gradient type)
        return ",".join(str(part).removeprefix("torch.") for part in key)
    return str(key)
