"""What the other ranks of a job have whole in memory: how many slots a rank must keep.

A step serves a restart only if all ranks have it. A rank that is quick may be saving step k while
another still copies step k-1: if it then overwrote k-2, a kill at that moment would leave no step
that both have. So it keeps its slots down to the newest one that all others have, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from relkit.flash_checkpoint.slots.errors import BadSlot
from relkit.flash_checkpoint.slots.rank_files import RankFiles

# Among the newest slots of a rank; those that meet in every step are at most two saves apart.
_MAX_STEPS = 3
# Where the others cannot be seen: when a rank that meets the others in every step saves step k, all
# have waited for the copy of k-2 before they changed their parameters in step k-1.
_UNSEEN = 2


class OtherRanks(Protocol):
    """All ranks of the job but this one."""

    def steps(self) -> Sequence[Collection[int]] | None:
        """The steps that each of them has whole; None where that cannot be seen from here."""


class Nobody:
    """There is no other rank; an OtherRanks."""

    def steps(self) -> Sequence[Collection[int]] | None:
        """See OtherRanks."""
        return ()


class OnOtherNodes:
    """Some of them are on other nodes; an OtherRanks."""

    def steps(self) -> Sequence[Collection[int]] | None:
        """See OtherRanks."""
        return None


class Neighbours:
    """All of them are on this node; an OtherRanks.

    Args:
        folder: of the slots; rank: this one; world_size: ranks of the job.
    """

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        self._files = RankFiles(folder, world_size)
        self._others = [other for other in range(world_size) if other != rank]

    def steps(self) -> Sequence[Collection[int]] | None:
        """See OtherRanks."""
        return [self._steps_of(rank) for rank in self._others]

    def _steps_of(self, rank: int) -> Collection[int]:
        with suppress(BadSlot, OSError):
            return {slot.header.step for slot in self._files.of(rank).whole()}
        return ()


def others_of(folder: Path, rank: int, world_size: int, local_world_size: int) -> OtherRanks:
    """The other ranks of a job, as far as they can be seen from here.

    Args:
        folder: of the slots; rank, world_size: of this process; local_world_size: ranks on its
            node.
    """
    if world_size == 1:
        return Nobody()
    return (
        Neighbours(folder, rank, world_size) if local_world_size == world_size else OnOtherNodes()
    )


def slots_to_keep(newest_first: Sequence[int], others: OtherRanks) -> int:
    """How many of the newest slots must not be overwritten by the next save.

    Args:
        newest_first: steps of this rank's whole slots; others: the other ranks.

    Returns:
        1 or more.
    """
    seen = others.steps()
    if seen is None:
        return _UNSEEN
    for number, step in enumerate(newest_first[:_MAX_STEPS]):
        if all(step in steps for steps in seen):
            return number + 1
    return _UNSEEN
