"""Folders with the parts of all ranks, in DCP's format and with a manifest: the training loop's.

The tracker names the manifest, whose checksum covers everything else. Those that launchers have
written are in persisted.py.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from relkit.checkpoint.atomic_swap import exchange
from relkit.checkpoint.iteration_folder import sync_folder, write_file
from relkit.checkpoint.manifest import MANIFEST, FileRecord, Manifest, read_manifest
from relkit.errors import BadInputFile, UnwritablePath
from relkit.flash_checkpoint.on_disk import disk
from relkit.flash_checkpoint.on_disk.disk import OnDisk
from relkit.flash_checkpoint.on_disk.saved_on_disk import SavedOnDisk
from relkit.flash_checkpoint.sharded.seal import METADATA, seal

_NEXT_STEP = "Load another folder: get_storage_reader(path)."


def begin(path: Path) -> Path:
    """Make the temporary folder of a checkpoint; what killed saves of the same one left is removed.

    Args:
        path: the folder's final name.

    Raises:
        UnwritablePath: it cannot be made.
    """
    folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            abandon(left)
        folder.mkdir(mode=0o700)
        sync_folder(path.parent)
    except OSError as error:
        raise UnwritablePath(f"cannot write {path}: {error.strerror}") from error
    return folder.absolute()


def publish(
    folder: Path,
    path: Path,
    step: int,
    root: Path,
    files: Sequence[FileRecord],
    facts: Mapping[str, Any],
    timeout_s: float,
) -> None:
    """Make a temporary folder the newest checkpoint.

    Args:
        folder: in which all parts are; path: its final name.
        root: folder of the tracker.
        files: the parts; facts: for the manifest.
        timeout_s: the longest to wait for the metadata, s.

    Raises:
        UnwritablePath: the disk is full, or a folder cannot be written.
    """
    metadata = seal(folder, int(facts["world_size"]), timeout_s)
    publish_files(folder, path, step, root, (*files, metadata), facts)


def publish_files(
    folder: Path,
    path: Path,
    step: int,
    root: Path,
    files: Sequence[FileRecord],
    facts: Mapping[str, Any],
) -> None:
    """As `publish`, of a folder with files of another format."""
    manifest = Manifest(step, tuple(files), facts)
    record = write_file(folder, MANIFEST, lambda out: out.write(manifest.encode()))
    named = OnDisk(
        step, path / MANIFEST, record.size_bytes, record.sha256, int(facts["saved_unix_ns"])
    )
    disk.publish(named, root, lambda: _rename(folder, path))
    abandon(folder)  # what had the final name before


def _rename(folder: Path, path: Path) -> None:
    try:
        sync_folder(folder)
        if path.exists():
            exchange(folder, path)
        else:
            folder.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise UnwritablePath(f"cannot write {path}: {error.strerror}") from error


def abandon(folder: Path) -> None:
    """Remove a temporary folder; nothing if there is none."""
    with suppress(OSError):
        shutil.rmtree(folder)


def folder_of(saved: SavedOnDisk) -> Path:
    """The folder of a checkpoint on disk.

    Raises:
        BadInputFile: it is not a sharded one, or its manifest is not what was written.
    """
    folder = saved.path
    if isinstance(saved, OnDisk):
        folder = saved.path.parent
        if saved.path.name == MANIFEST:
            disk.require_as_written(saved, _NEXT_STEP)
    if not os.path.lexists(folder / METADATA):
        raise BadInputFile(
            f"{saved.path} is not a sharded checkpoint",
            next_step=f"Load it with the checkpointer that has saved it. {_NEXT_STEP}",
        )
    return folder


def resharding(folder: Path, world_size: int) -> str:
    """What to say about a checkpoint of another number of ranks; "" where it is the same.

    Raises:
        BadInputFile: the manifest cannot be read.
    """
    try:
        saved_by = int(read_manifest(folder).facts["world_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputFile(f"{folder} does not say how many ranks saved it: {error}") from error
    if saved_by == world_size:
        return ""
    return f", which {saved_by} ranks saved: torch reshards it for {world_size}"
