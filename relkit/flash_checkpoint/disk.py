"""The checkpoints of a folder on disk: torch's own files, and a tracker that names the last one."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from relkit.checkpoint.iteration_folder import sync_folder, write_file
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile, UnwritablePath
from relkit.foreign_json import parse_json
from relkit.input_file import open_input, read_input

TRACKER = "flash_checkpoint.json"
SCHEMA = "relkit.flash_checkpoint/1"
_MAX_TRACKER_BYTES = 1 << 16
_HASHED_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The checkpoint that a tracker names.

    Args:
        step: as the loop named it; path: of the file.
        size_bytes, sha256: as it was written.
    """

    step: int
    path: Path
    size_bytes: int
    sha256: str


def write(state: object, path: Path, step: int, root: Path) -> OnDisk:
    """Write a state durably: under another name first, and the tracker last.

    Args:
        path: of the file, which torch.load opens; missing folders are made.
        root: the folder with the tracker.

    Raises:
        UnwritablePath: the disk is full, or a folder cannot be written; what was there before is
            as it was.
    """
    record = _write_as(path, lambda out: torch.save(state, out))
    done = OnDisk(step, path, record.size_bytes, record.sha256)
    inside = path.absolute().is_relative_to(root.absolute())
    name = path.absolute().relative_to(root.absolute()) if inside else path.absolute()
    plain = {
        "schema": SCHEMA,
        "step": step,
        "file": str(name),
        "size_bytes": done.size_bytes,
        "sha256": done.sha256,
    }
    _write_as(root / TRACKER, lambda out: out.write((json.dumps(plain) + "\n").encode()))
    return done


def _write_as(path: Path, content: Any) -> Any:  # noqa: ANN401  write_file's own
    temporary = f".{path.name}.tmp"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path.parent / temporary).unlink(missing_ok=True)
        record = write_file(path.parent, temporary, content)
        (path.parent / temporary).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise UnwritablePath(
            f"cannot write {path}: {error.strerror}",
            next_step="Free some space or name another folder; the checkpoint before is as it was.",
        ) from error
    return record


def latest(root: Path) -> OnDisk | None:
    """What the tracker names; None where there is none.

    Raises:
        BadInputFile: it is no tracker.
    """
    path = root / TRACKER
    try:
        plain = parse_json(read_input(path, _MAX_TRACKER_BYTES))
        if plain["schema"] != SCHEMA:
            raise BadInputFile(f"{path} is a {plain['schema']!r}, not a {SCHEMA}")
        return OnDisk(
            int(plain["step"]), root / plain["file"], int(plain["size_bytes"]), plain["sha256"]
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputFile(
            f"{path} names no checkpoint: {error}",
            next_step="Name a file: load_checkpoint(path).",
        ) from error


def read(found: OnDisk) -> Any:  # noqa: ANN401
    """The state in a checkpoint that a tracker names, held against what was written.

    Raises:
        BadInputFile: it is missing or damaged, or holds something else than plain data.
    """
    digest = hashlib.sha256()
    next_step = "Name another file: load_checkpoint(path)."
    try:
        with open_input(found.path) as stream:
            size = os.fstat(stream.fileno()).st_size
            while size == found.size_bytes and (block := stream.read(_HASHED_BYTES)):
                digest.update(block)
    except OSError as error:
        raise BadInputFile(
            f"cannot read {found.path}: {error.strerror}", next_step=next_step
        ) from error
    if size != found.size_bytes or digest.hexdigest() != found.sha256:
        raise BadInputFile(f"{found.path} is not what was written", next_step=next_step)
    return read_plain(found.path, arrays=True)
