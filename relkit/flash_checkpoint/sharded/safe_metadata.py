"""Reads DCP's `.metadata`, a pickle, as the few classes that DCP puts into it, and nothing else."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint import metadata as dcp

from relkit.errors import BadInputFile
from relkit.files.input_file import read_input
from relkit.flash_checkpoint.sharded.metadata_objects import (
    Converter,
    Refused,
    names_for_one_reading,
)

# A shard takes about 170 bytes, in about 70 instructions of the pickle.
_MAX_BYTES = 1 << 28
_MAX_INSTRUCTIONS = 1 << 26
_NUMBERED = ("PUT", "BINPUT", "LONG_BINPUT")
_UNREADABLE = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, LookupError,
    ArithmeticError, MemoryError, RuntimeError, ImportError,
)  # fmt: skip


class _Unpickler(pickle.Unpickler):
    """Knows the names in DCP's metadata, and imports nothing."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._known = names_for_one_reading()

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """As pickle's; data types are constants of torch."""
        known = self._known.get((module, name))
        if known is None and module == "torch":
            known = getattr(torch, name, None)
            known = known if isinstance(known, torch.dtype) else None
        if known is None:
            raise Refused(f"{module}.{name}")
        return known

    def persistent_load(self, _pid: object) -> Any:  # noqa: ANN401
        """As pickle's."""
        raise Refused("a persistent object")


def read_metadata(path: Path) -> dcp.Metadata:
    """The metadata in a file.

    Raises:
        BadInputFile: it is missing or damaged; it would call or make something else than the
            classes of DCP's metadata, which is named; or it names files outside of its folder.
    """
    try:
        data = read_input(path, _MAX_BYTES)
        _require_bounded(data)
        metadata = Converter().real(_Unpickler(data).load())
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror or error}") from error
    except Refused as error:
        raise BadInputFile(
            f"{path} is refused: it would call or make {error}, and the metadata of a checkpoint"
            " does not",
            next_step="Do not load it by other means unless you trust who wrote it.",
        ) from error
    except _UNREADABLE as error:
        raise BadInputFile(f"{path} is not DCP's metadata, or is damaged: {error}"[:400]) from error
    if not isinstance(metadata, dcp.Metadata) or not isinstance(metadata.storage_data, dict):
        raise BadInputFile(f"{path} is not DCP's metadata")
    for info in metadata.storage_data.values():
        _require_inside(path, info)
    return metadata


def _require_bounded(data: bytes) -> None:
    """A pickle of a few bytes can ask for any amount of memory: such a one is refused unread.

    Raises:
        ValueError: it would take more memory than its size explains.
    """
    for count, (instruction, argument, _) in enumerate(pickletools.genops(data), 1):
        # Reading makes a table up to the highest number; who writes them counts from 0.
        if instruction.name in _NUMBERED and isinstance(argument, int) and argument > count:
            raise ValueError(f"its object number {argument} comes after {count} instructions")
        if count > _MAX_INSTRUCTIONS:
            raise ValueError(f"it has more than {_MAX_INSTRUCTIONS} instructions")


def _require_inside(path: Path, info: object) -> None:
    name = getattr(info, "relative_path", None)
    if (
        not isinstance(info, filesystem._StorageInfo)
        or not isinstance(name, str)
        or name.startswith("/")
        or ".." in name.split("/")
        or "\0" in name
    ):
        raise BadInputFile(f"{path} is refused: it names {name!r}, which is not in its folder")
