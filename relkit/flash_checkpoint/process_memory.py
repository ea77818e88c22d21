"""Gives all checkpointers of a process that save to one folder the same slots in memory.

Under a launcher the slots are the rank's in any case. Without one they are the process's own, and
what one checkpointer has saved there would be out of the sight of the next one.
"""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from pathlib import Path

from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.slot_folder import OwnFolder


@dataclass(frozen=True, slots=True)
class _Of:
    """Whose slots they are."""

    pid: int
    rank: int
    world_size: int
    root: Path
    launcher: Path | None


@dataclass(slots=True)
class _Used:
    memory: RankMemory
    users: int = 0


class _Left:
    """The slots that a closed checkpointer has left in a process without a launcher.

    They stay until the process ends, or saves to another folder: those of one folder at most.
    """

    def __init__(self) -> None:
        self._of: _Of | None = None
        self._folder: OwnFolder | None = None

    def take(self, of: _Of) -> OwnFolder | None:
        """Those of this folder, if they have been left; others are removed."""
        folder = self._folder if self._of == of else None
        if folder is None:
            self.remove()
        self._of = self._folder = None
        return folder

    def keep(self, of: _Of, folder: OwnFolder) -> None:
        """Keep them, and none that were left before."""
        self.remove()
        self._of, self._folder = of, folder

    def remove(self) -> None:
        """Free their memory."""
        if self._folder is not None:
            self._folder.remove()
        self._of = self._folder = None


_used: dict[_Of, _Used] = {}
_left = _Left()
# Behind the checkpointers, which are made later, and close before.
atexit.register(_left.remove)


def take(rank: int, world_size: int, threads: int | None, root: Path) -> RankMemory:
    """The slots of this rank for a folder of checkpoints; `give_back` ends the use.

    Args:
        rank, world_size: of this process.
        threads: as of RankMemory; the first checkpointer decides.
        root: folder of the checkpoints on disk.
    """
    of = _of(rank, world_size, root)
    used = _used.get(of)
    if used is None:
        used = _used[of] = _Used(RankMemory(rank, world_size, threads, root, _left.take(of)))
    used.users += 1
    return used.memory


def give_back(memory: RankMemory) -> None:
    """A checkpointer saves no more: with the last one, the threads end, and another may take over.

    Args:
        memory: that `take` has given, perhaps in the parent of this process.
    """
    for of, used in tuple(_used.items()):
        if used.memory is not memory:
            continue
        used.users -= 1
        if used.users > 0:
            return
        del _used[of]
        memory.close()
        own = memory.give_up_own()
        if own is not None and of.pid == os.getpid():
            _left.keep(of, own)


def _of(rank: int, world_size: int, root: Path) -> _Of:
    folder = Path(os.path.realpath(root))
    return _Of(os.getpid(), rank, world_size, folder, slot_folder.of_launcher())
