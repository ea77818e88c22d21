"""Checkpoints that launchers have written from memory: one file per rank, and a manifest.

Of a sharded state, the files are those of torch.distributed.checkpoint; of Megatron's, its own.
They are iterations of `relkit.checkpoint.iteration_folder` in a folder of their own, so that
`relkit ckpt verify` and retention work as for any other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import read_manifest
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER
from relkit.flash_checkpoint.on_disk.iteration_files import list_name
from relkit.flash_checkpoint.sharded.part_file import part_name


@dataclass(frozen=True, slots=True)
class Persisted:
    """One such checkpoint.

    Args:
        step: of the training loop; path: of the folder with its files.
        world_size: number of ranks that were saved.
        saved_unix_ns: when rank 0 saved it into memory.
    """

    step: int
    path: Path
    world_size: int
    saved_unix_ns: int

    @property
    def facts(self) -> dict[str, int]:
        """What its manifest says beside the files."""
        return {"world_size": self.world_size, "saved_unix_ns": self.saved_unix_ns}


def file_name(rank: int) -> str:
    """Name of a rank's file within the folder of a step."""
    return f"rank-{rank}.pt"


def are_complete(names: Collection[str], world_size: int) -> bool:
    """Whether these are the files of all ranks, each once.

    Of whole states, or of parts of a sharded one, there is one per rank; of states that consist of
    a framework's files, a list per rank, and the files, of which there is at least one.
    """
    distinct = set(names)
    if len(distinct) != len(names):
        return False
    kinds = (file_name, part_name)
    if any(distinct == {name(rank) for rank in range(world_size)} for name in kinds):
        return True
    lists = {name for name in distinct if name.startswith("rank-")}
    return lists == {list_name(rank) for rank in range(world_size)} and lists != distinct


def are_parts(names: Collection[str]) -> bool:
    """Whether these are files with parts of a sharded state, which belong together."""
    return part_name(0) in names


def temporary_folder(root: Path, step: int) -> Path:
    """Where the files of a step are until all of them are whole."""
    name = iteration_folder.iteration_name(step) + iteration_folder.TEMPORARY
    return root / LAUNCHERS_FOLDER / name


def latest(root: Path) -> Persisted | None:
    """The newest one under a folder of checkpoints; None if there is none.

    Raises:
        BadInputFile: its tracker or its manifest cannot be read.
    """
    step = iteration_folder.latest(root / LAUNCHERS_FOLDER)
    return None if step is None else at_step(root, step)


def at_step(root: Path, step: int) -> Persisted:
    """The one of a step.

    Raises:
        BadInputFile: there is none, or its manifest cannot be read.
    """
    folder = iteration_folder.existing(root / LAUNCHERS_FOLDER, step)
    facts = read_manifest(folder).facts
    try:
        return Persisted(step, folder, int(facts["world_size"]), int(facts["saved_unix_ns"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInputFile(f"{folder} was not written from memory: {error}") from error


def read(persisted: Persisted, rank: int, world_size: int) -> Any:  # noqa: ANN401
    """The state of a rank; its checksum is verified.

    Args:
        rank, world_size: of this job. If it has another number of ranks, each gets rank 0's state.

    Raises:
        BadInputFile: it is missing or damaged, or holds more than plain data.
    """
    name = file_name(rank if world_size == persisted.world_size else 0)
    for _, problem in iteration_folder.problems(persisted.path, only=[name]):
        raise BadInputFile(
            f"{persisted.path / name} {problem}",
            next_step="Load another file: load_checkpoint(path).",
        )
    return read_plain(persisted.path / name, arrays=True)
