"""What a training loop lends to try-to-persist: how to save, and how to catch up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.checkpoint.manifest import FileRecord
from relkit.errors import RelkitError
from relkit.ttp.plan import SavePlan


class NotFinite(RelkitError):
    """The state that would be saved has a NaN or an infinity in it."""

    next_step = "Resume from the latest periodic checkpoint; the numbers were bad before the fault."


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """One rank's part of an emergency save.

    Args:
        step: whose state is saved.
        folder: temporary folder of the iteration, on storage that all ranks share; it is empty.
        plan: who gives which shard, and who writes.
        rank: this one.
        group: a fresh gloo process group of `ranks`, with this rank's place in it; None where it
            would have one member. The job's own groups must not be used any more.
        ranks: global ranks of the group, ascending.
    """

    step: int
    folder: Path
    plan: SavePlan
    rank: int
    group: Any
    ranks: tuple[int, ...]


SaveHandler = Callable[[SaveRequest], Sequence[FileRecord]]
RenameHandler = Callable[[int, Path, Sequence[FileRecord]], Path]


@dataclass(frozen=True, slots=True)
class Handlers:
    """The calls into a training loop.

    Args:
        root: where checkpoints go; iteration folders are made in it.
        save: gives this rank's shards to the writers, and writes where it is one; returns what it
            wrote (by iteration_folder.write_file, which flushes to disk and makes the checksum).
        roll_forward: makes the step whose gradients are reduced already, without communication.
        rollback: takes the kept copy of the step before (only with a local copy).
        rename: gives the iteration its final name; None: iteration_folder.commit.
        facts: for the manifest.
    """

    root: Path
    save: SaveHandler
    roll_forward: Callable[[int], None]
    rollback: Callable[[int], None] | None = None
    rename: RenameHandler | None = None
    facts: Callable[[], Mapping[str, Any]] = dict
