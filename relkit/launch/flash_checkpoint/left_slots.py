"""Slots that a killed launcher of the same job has left on this node: whether they are of use."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from relkit.flash_checkpoint import destination
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.slot_folder import LeftFolder
from relkit.launch.flash_checkpoint.node_slots import NodeSlots


def judge(folder: Path, ranks: Collection[int], world_size: int) -> LeftFolder:
    """What becomes of a folder that a launcher of the same job has left.

    It is taken over if all ranks of this node have a step in it, saved for a folder of checkpoints
    that is still there. A folder of other ranks is left: it may be that of another launcher of the
    job on this host, which comes back as well.

    Args:
        folder: of slots; ranks: of this node; world_size: ranks of the job.
    """
    has = {rank for rank in range(world_size) if slot_folder.slots_path(folder, rank).exists()}
    if has and has.isdisjoint(ranks):
        return LeftFolder.LEAVE
    if not has.issuperset(ranks) or not _is_root_there(folder, ranks):
        return LeftFolder.REMOVE
    newest = NodeSlots(folder, sorted(ranks), world_size).newest()
    return LeftFolder.TAKE if newest >= 0 else LeftFolder.REMOVE


def _is_root_there(folder: Path, ranks: Collection[int]) -> bool:
    """Whether the folder in which each of these ranks kept its checkpoints still has its mark."""
    notes = [destination.read(folder, rank) for rank in ranks]
    return all(note and note.mark and note.mark == destination.mark_of(note.root) for note in notes)
