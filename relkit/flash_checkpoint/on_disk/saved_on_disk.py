"""The newest checkpoint of a folder on disk: the training loop's, or the launchers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relkit.checkpoint.manifest import MANIFEST
from relkit.errors import BadInputFile
from relkit.flash_checkpoint.on_disk import disk, persisted
from relkit.flash_checkpoint.on_disk.disk import OnDisk
from relkit.flash_checkpoint.on_disk.persisted import Persisted

SavedOnDisk = OnDisk | Persisted


def place(saved: SavedOnDisk) -> Path:
    """The file or folder that it is in, for people."""
    return saved.path.parent if saved.path.name == MANIFEST else saved.path


def newest(root: Path) -> SavedOnDisk | None:
    """The one whose state was saved last; None if there is none.

    Raises:
        BadInputFile: a tracker or a manifest cannot be read.
    """
    both = (disk.latest(root), persisted.latest(root))
    there = [saved for saved in both if saved is not None]
    return max(there, key=lambda saved: (saved.saved_unix_ns, saved.step), default=None)


def require(root: Path, step: int, *, is_persisted: bool) -> SavedOnDisk:
    """The one that rank 0 has found.

    Raises:
        BadInputFile: it is not there.
    """
    saved = persisted.at_step(root, step) if is_persisted else disk.latest(root)
    if saved is None or saved.step != step:
        raise BadInputFile(
            f"{root} does not have the checkpoint of step {step} that rank 0 sees there",
            next_step="Save to a folder that all ranks share.",
        )
    return saved


def of_other_ranks(saved: SavedOnDisk, world_size: int) -> str:
    """What is to be said of a checkpoint that another number of ranks has saved; "" for the same.

    Args:
        world_size: of this job.
    """
    if not isinstance(saved, Persisted) or saved.world_size == world_size:
        return ""
    return f", which {saved.world_size} ranks saved: each of {world_size} gets rank 0's state"


def read(saved: SavedOnDisk, rank: int, world_size: int) -> Any:  # noqa: ANN401
    """The state of a rank; checksums are verified.

    Args:
        rank, world_size: of this job.

    Raises:
        BadInputFile: it is missing or damaged, or holds more than plain data.
    """
    if isinstance(saved, Persisted):
        return persisted.read(saved, rank, world_size)
    return disk.read(saved)
