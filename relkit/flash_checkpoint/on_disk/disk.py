"""Checkpoints on disk: files in torch's own format, and a tracker that names the last one."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from relkit.checkpoint.iteration_folder import sync_folder, write_file
from relkit.checkpoint.manifest import FileRecord
from relkit.errors import BadInputFile, UnwritablePath
from relkit.files.input_file import open_input, read_input
from relkit.text.foreign_json import parse_json

TRACKER = "flash_checkpoint.json"
# In the same folder: what launchers have written from memory (persisted.py).
LAUNCHERS_FOLDER = "from-memory"
SCHEMA = "relkit.flash_checkpoint/1"
_MAX_TRACKER_BYTES = 1 << 16
_HASHED_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The checkpoint that a tracker names.

    Args:
        step: of the training loop; path: of the file.
        size_bytes, sha256: of its content.
        saved_unix_ns: when its state was saved, Unix time; 0 where not known.
    """

    step: int
    path: Path
    size_bytes: int
    sha256: str
    saved_unix_ns: int = 0


def write(
    state: object,
    path: Path,
    step: int,
    root: Path,
    require_unchanged: Callable[[], None] = lambda: None,
    saved_unix_ns: int | None = None,
) -> OnDisk:
    """Write a state durably: first under a temporary name, and the tracker last.

    Args:
        path: of the file, in torch.save's format; missing folders are made.
        root: folder of the tracker.
        require_unchanged: called when all is written and nothing is visible yet; it raises if the
            state has changed meanwhile.
        saved_unix_ns: when the state was saved, Unix time; None: now.

    Raises:
        UnwritablePath: the disk is full, or a folder cannot be written. The previous checkpoint is
            intact, as it is where `require_unchanged` raises.
    """
    import torch  # only here: `relkit ckpt verify` has no need of it

    saved_unix_ns = time.time_ns() if saved_unix_ns is None else saved_unix_ns
    temporary, record = _write_temporary(path, lambda out: torch.save(state, out))
    try:
        require_unchanged()
    except BaseException:
        _remove(temporary)
        raise
    done = OnDisk(step, path, record.size_bytes, record.sha256, saved_unix_ns)
    publish(done, root, lambda: _rename(temporary, path))
    return done


def publish(done: OnDisk, root: Path, rename: Callable[[], object]) -> None:
    """Make a checkpoint that is written the one that the tracker names.

    Args:
        done: the checkpoint, under its final name.
        root: folder of the tracker.
        rename: gives the checkpoint its final name.

    Raises:
        UnwritablePath: a folder cannot be written.
    """
    try:
        before = latest(root)
    except BadInputFile:
        before = None
    if before is not None and before.path.absolute() == done.path.absolute():
        # Its file is about to be replaced: meanwhile the tracker accepts either content.
        _track(root, {**_plain(before, root), "next": _plain(done, root)})
    rename()
    _track(root, _plain(done, root))


def _plain(done: OnDisk, root: Path) -> dict[str, Any]:
    path, inside = done.path.absolute(), root.absolute()
    name = path.relative_to(inside) if path.is_relative_to(inside) else path
    return {
        "step": done.step,
        "file": str(name),
        "size_bytes": done.size_bytes,
        "sha256": done.sha256,
        "saved_unix_ns": done.saved_unix_ns,
    }


def _track(root: Path, plain: dict[str, Any]) -> None:
    text = json.dumps({"schema": SCHEMA, **plain}) + "\n"
    temporary, _ = _write_temporary(root / TRACKER, lambda out: out.write(text.encode()))
    _rename(temporary, root / TRACKER)


def _write_temporary(path: Path, content: Callable[[BinaryIO], object]) -> tuple[Path, FileRecord]:
    """Write a file durably under a temporary name in its folder.

    The name is of this call only: a killed rank's writer may still be at work while the next one
    writes. The later one removes what the earlier one has not finished, which then fails.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            left.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        return temporary, write_file(path.parent, temporary.name, content)
    except BaseException:
        _remove(temporary)  # a part of a file would keep a full disk full
        raise


def _remove(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def _rename(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UnwritablePath:
    return UnwritablePath(
        f"cannot write {path}: {error.strerror}",
        next_step="Free some space, or name another folder; the previous checkpoint is intact.",
    )


def latest(root: Path) -> OnDisk | None:
    """The checkpoint that the tracker names; None where there is no tracker.

    Raises:
        BadInputFile: it is not a tracker.
    """
    path = root / TRACKER
    try:
        plain = parse_json(read_input(path, _MAX_TRACKER_BYTES))
        if plain["schema"] != SCHEMA:
            raise BadInputFile(f"{path} is a {plain['schema']!r}, not a {SCHEMA}")
        named, replacement = _on_disk(plain, root), plain.get("next")
        if replacement is not None and _is_as_written(_on_disk(replacement, root)):
            return _on_disk(replacement, root)
        return named
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
        int(plain["step"]),
        root / plain["file"],
        int(plain["size_bytes"]),
        str(plain["sha256"]),
        int(plain.get("saved_unix_ns", 0)),
    )


def _is_as_written(named: OnDisk) -> bool:
    """Whether a file has the content that was written.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open_input(named.path) as stream:
        if os.fstat(stream.fileno()).st_size != named.size_bytes:
            return False
        while block := stream.read(_HASHED_BYTES):
            digest.update(block)
    return digest.hexdigest() == named.sha256


def read(named: OnDisk) -> Any:  # noqa: ANN401
    """The state in a checkpoint that a tracker names; its checksum is verified.

    Raises:
        BadInputFile: it is missing or damaged, or holds more than plain data.
    """
    from relkit.checkpoint.torch_file import read_plain

    next_step = "Name another file: load_checkpoint(path)."
    require_as_written(named, next_step)
    return read_plain(named.path, arrays=True)


def require_as_written(named: OnDisk, next_step: str) -> None:
    """Verify the checksum of the file that a tracker names.

    Raises:
        BadInputFile: it is missing or damaged.
    """
    try:
        as_written = _is_as_written(named)
    except OSError as error:
        raise BadInputFile(
            f"cannot read {named.path}: {error.strerror}", next_step=next_step
        ) from error
    if not as_written:
        raise BadInputFile(f"{named.path} is not what was written", next_step=next_step)
