"""The checkpoints of a folder on disk: torch's own files, and a tracker that names the last one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from relkit.checkpoint.iteration_folder import sync_folder, write_file
from relkit.checkpoint.manifest import FileRecord
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
    record = _write_temporary(path, lambda out: torch.save(state, out))
    done = OnDisk(step, path, record.size_bytes, record.sha256)
    try:
        before = latest(root)
    except BadInputFile:
        before = None
    if before is not None and before.path.absolute() == path.absolute():
        # Its file is about to change: until the tracker says so, either content will do.
        _track(root, {**_plain(before, root), "next": _plain(done, root)})
    _rename(path)
    _track(root, _plain(done, root))
    return done


def _plain(done: OnDisk, root: Path) -> dict[str, Any]:
    path, inside = done.path.absolute(), root.absolute()
    name = path.relative_to(inside) if path.is_relative_to(inside) else path
    return {
        "step": done.step,
        "file": str(name),
        "size_bytes": done.size_bytes,
        "sha256": done.sha256,
    }


def _track(root: Path, plain: dict[str, Any]) -> None:
    text = json.dumps({"schema": SCHEMA, **plain}) + "\n"
    _write_temporary(root / TRACKER, lambda out: out.write(text.encode()))
    _rename(root / TRACKER)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _write_temporary(path: Path, content: Callable[[BinaryIO], object]) -> FileRecord:
    """Write a file durably beside its place."""
    temporary = _temporary(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        return write_file(path.parent, temporary.name, content)
    except BaseException:
        # A disk that is full stays so for as long as this is there.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _rename(path: Path) -> None:
    try:
        _temporary(path).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UnwritablePath:
    return UnwritablePath(
        f"cannot write {path}: {error.strerror}",
        next_step="Free some space or name another folder; the checkpoint before is as it was.",
    )


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
        found, begun = _on_disk(plain, root), plain.get("next")
        if begun is not None and _is_as_written(_on_disk(begun, root)):
            return _on_disk(begun, root)
        return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputFile(
            f"{path} names no checkpoint: {error}",
            next_step="Name a file: load_checkpoint(path).",
        ) from error


def _on_disk(plain: dict[str, Any], root: Path) -> OnDisk:
    return OnDisk(
        int(plain["step"]), root / plain["file"], int(plain["size_bytes"]), str(plain["sha256"])
    )


def _is_as_written(found: OnDisk) -> bool:
    """Hold a file against what was written.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open_input(found.path) as stream:
        if os.fstat(stream.fileno()).st_size != found.size_bytes:
            return False
        while block := stream.read(_HASHED_BYTES):
            digest.update(block)
    return digest.hexdigest() == found.sha256


def read(found: OnDisk) -> Any:  # noqa: ANN401
    """The state in a checkpoint that a tracker names, held against what was written.

    Raises:
        BadInputFile: it is missing or damaged, or holds something else than plain data.
    """
    next_step = "Name another file: load_checkpoint(path)."
    try:
        as_written = _is_as_written(found)
    except OSError as error:
        raise BadInputFile(
            f"cannot read {found.path}: {error.strerror}", next_step=next_step
        ) from error
    if not as_written:
        raise BadInputFile(f"{found.path} is not what was written", next_step=next_step)
    return read_plain(found.path, arrays=True)
