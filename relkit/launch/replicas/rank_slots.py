"""The slots of this node's ranks, as they change while the ranks train."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from relkit.flash_checkpoint.replicas.copy_stream import ReadInto, reader_of
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.rank_files import RankFiles
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.launch.replicas.plan import Rhythm

# With fewer slots in its file, a rank could not save while one of them is locked.
_LOCKABLE = 3


class RankSlots:
    """Reads them, and locks one while it is copied.

    Args:
        folder: of the slots; ranks: of this node; world_size: ranks of the job.
    """

    def __init__(self, folder: Path, ranks: Sequence[int], world_size: int) -> None:
        self.folder, self.ranks = folder, tuple(ranks)
        self._world_size = world_size
        self._files = RankFiles(folder, world_size)

    def steps(self) -> dict[int, list[int]]:
        """rank -> the steps that it has whole."""
        return {rank: [slot.header.step for slot in self._whole(rank)] for rank in self.ranks}

    def newest(self) -> int:
        """The newest step that all ranks of this node have whole; -1 where there is none."""
        steps = [set(of_rank) for of_rank in self.steps().values()]
        return max(set.intersection(*steps), default=-1)

    def rhythm(self) -> Rhythm | None:
        """How the ranks save; None while no rank has two steps."""
        newest = self.newest()
        slots = sorted(self._whole(self.ranks[0]), key=lambda slot: slot.header.sequence)
        if newest < 0 or len(slots) < 2:
            return None
        before, last = slots[-2].header, slots[-1].header
        saves = last.sequence - before.sequence
        stride = (last.step - before.step) // max(1, saves)
        period_s = (last.saved_unix_ns - before.saved_unix_ns) / 1e9 / max(1, saves)
        saved = next((s.header.saved_unix_ns for s in slots if s.header.step == newest), 0)
        if stride < 1 or not saved:
            return None
        return Rhythm(newest, stride, max(0.0, period_s), saved / 1e9)

    def slot_bytes(self) -> int:
        """Size of one slot of each rank, all together."""
        total = 0
        for rank in self.ranks:
            with suppress(BadSlot, OSError):
                total += self._files.of(rank).slot_bytes
        return total

    def locked(self, rank: int, step: int) -> LockedSlot:
        """A slot of a rank, to be copied.

        Raises:
            BadSlot: the rank does not have the step whole.
        """
        with suppress(OSError):
            owner = slot_folder.owner(self.folder, rank, self._world_size)
            # Not one of `_files`: a lock belongs to a descriptor of its own.
            file = SlotFile.open(slot_folder.slots_path(self.folder, rank), owner)
            try:
                slots = [slot for slot in file.whole() if slot.header.step == step]
                if slots:
                    return LockedSlot(file, slots[0])
            except BaseException:
                file.close()
                raise
            file.close()
        raise BadSlot(SlotFault.EMPTY, f"rank {rank} does not have step {step} any more")

    def _whole(self, rank: int) -> list[WholeSlot]:
        with suppress(BadSlot, OSError):
            return self._files.of(rank).whole()
        return []


class LockedSlot:
    """A slot that its rank does not overwrite meanwhile, where it has another one to save into.

    Args:
        file: of the slots, which this object closes; slot: which one.
    """

    def __init__(self, file: SlotFile, slot: WholeSlot) -> None:
        self._file, self.header, self._index = file, slot.header, slot.index
        self.read_into: ReadInto = reader_of(file.fileno(), file.base(slot.index))
        if file.count >= _LOCKABLE:
            # Else the copy may come to nothing; that is seen by its checksums.
            file.lock(slot.index)

    def close(self) -> None:
        """Unlock it."""
        # By itself: the mapping has the file open for as long as somebody has this object.
        with suppress(OSError):
            self._file.unlock(self._index)
        self._file.close()
