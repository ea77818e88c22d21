"""A state that consists of a framework's own files: what one rank writes into an iteration folder.

Megatron's layout: `iter_0000010/mp_rank_00/model_optim_rng.pt`, which needs no relkit to load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from relkit.checkpoint.iteration_folder import write_file
from relkit.checkpoint.limited_stream import LimitedStream
from relkit.checkpoint.manifest import FileRecord, name_inside
from relkit.errors import BadInputFile
from relkit.files.input_file import read_input
from relkit.flash_checkpoint.on_disk.native_objects import Member, to_objects
from relkit.text.foreign_json import parse_json

# The key that makes a state one of files.
MARK = "relkit.files/1"
# The key of what is kept in memory only.
MEMORY_ONLY = "memory only"
_MAX_LIST_BYTES = 1 << 20


def of_files(
    files: Mapping[str, Any], memory_only: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The state that consists of these files.

    Args:
        files: names within the iteration's folder -> plain data.
        memory_only: plain data that is not written to disk.
    """
    return {MARK: dict(files), MEMORY_ONLY: dict(memory_only or {})}


def is_files(state: object) -> bool:
    """Whether a state is one of `of_files`."""
    return (
        isinstance(state, dict)
        and set(state) - {MEMORY_ONLY} == {MARK}
        and isinstance(state[MARK], dict)
        and isinstance(state.get(MEMORY_ONLY, {}), dict)
    )


def files_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inverse of `of_files`. The names are not trusted.

    Raises:
        BadInputFile: a file is not inside the folder.
    """
    files: Mapping[str, Any] = state[MARK]
    try:
        return {name_inside(name): content for name, content in files.items()}
    except ValueError as error:
        raise BadInputFile(f"a state in memory cannot be used: {error}") from error


def list_name(rank: int) -> str:
    """Name of the file that lists what a rank has written: there may be nothing else of it."""
    return f"rank-{rank}.files"


def listed(folder: Path, rank: int) -> list[str]:
    """The names in the list of what a rank has written.

    Raises:
        BadInputFile: it is missing, or is no such list.
    """
    path = folder / list_name(rank)
    try:
        names = parse_json(read_input(path, _MAX_LIST_BYTES))
        return [name_inside(name) for name in names]
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise BadInputFile(f"{path} is not a list of files: {error}") from error


def write_files(
    state: Mapping[str, Any], folder: Path, rank: int, member: Member, max_bytes_per_s: float = 0.0
) -> list[FileRecord]:
    """Write a rank's files durably, and the list of them.

    Args:
        state: from `of_files`.
        folder: exists.
        member: makes members of enums; see native_objects.
        max_bytes_per_s: limit on writing; 0: none.

    Raises:
        BadInputFile: a file is not inside the folder.
        UnwritablePath: the disk is full, or the folder cannot be written.
    """
    records = []
    for name, content in files_of(state).items():
        native = to_objects(content, member)

        def save(out: BinaryIO, native: object = native) -> None:
            torch.save(native, cast(BinaryIO, LimitedStream(out, max_bytes_per_s)))

        records.append(write_file(folder, name, save))
    listed = json.dumps([record.name for record in records]).encode()
    return [*records, write_file(folder, list_name(rank), lambda out: out.write(listed))]
