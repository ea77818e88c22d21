"""What a node has in its slots, and how it is locked and written: for the rounds of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from relkit.flash_checkpoint import destination
from relkit.flash_checkpoint.on_disk import persisted
from relkit.flash_checkpoint.persist_slots import Written, persist_slots
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.errors import BadSlot
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.slots.slot_format import Owner


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """What the ranks of a node have whole in memory.

    Args:
        steps: by rank, the steps, each with the time at which it was saved (Unix time, ns).
        root: where the job keeps its checkpoints on disk; "" if no rank has said so.
    """

    steps: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    root: str = ""

    def to_plain(self) -> dict[str, Any]:
        """As JSON's types."""
        rows = [[rank, *step] for rank, steps in self.steps.items() for step in steps.items()]
        return {"ranks": list(self.steps), "rows": rows, "root": self.root}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> NodeOffer:
        """The inverse.

        Raises:
            ValueError, KeyError, TypeError: it is not an offer.
        """
        steps: dict[int, dict[int, int]] = {int(rank): {} for rank in plain["ranks"]}
        for rank, step, saved_unix_ns in plain["rows"]:
            steps[int(rank)][int(step)] = int(saved_unix_ns)
        return cls(steps, str(plain["root"]))


class SlotSource(Protocol):
    """The slots of a node."""

    def newest(self) -> int:
        """The newest step that all ranks of this node have whole; -1 where there is none."""

    def collect(self) -> NodeOffer:
        """Lock all whole slots, and say what is in them."""

    def write(self, step: int, max_bytes_per_s: float, timeout_s: float) -> Written:
        """Write the locked slots of a step into the temporary folder of that step on disk."""

    def release(self) -> None:
        """Unlock everything: savers may overwrite it."""


class NodeSlots:
    """The slots of this node's ranks in the launcher's folder; a SlotSource.

    Args:
        folder: of the slots; ranks: of this node; world_size: ranks of the job.
    """

    def __init__(self, folder: Path, ranks: Sequence[int], world_size: int) -> None:
        self._folder, self._ranks, self._world_size = folder, tuple(ranks), world_size
        self._locked: dict[int, tuple[SlotFile, dict[int, WholeSlot]]] = {}

    @property
    def has_any(self) -> bool:
        """A rank of this node has saved into memory."""
        return any(slot_folder.slots_path(self._folder, rank).exists() for rank in self._ranks)

    def newest(self) -> int:
        """See SlotSource."""
        newest = self.newest_saved()
        return -1 if newest is None else newest[0]

    def newest_saved(self) -> tuple[int, int] | None:
        """The same step, and when the first of these ranks had saved it (Unix time, ns)."""
        common: dict[int, int] | None = None
        for rank in self._ranks:
            steps: dict[int, int] = {}
            with suppress(BadSlot, OSError):
                file = SlotFile.open(*self._file_of(rank))
                steps = {slot.header.step: slot.header.saved_unix_ns for slot in file.whole()}
                file.close()
            common = steps if common is None else {
                step: min(saved, steps[step]) for step, saved in common.items() if step in steps
            }  # fmt: skip
        return max((common or {}).items(), default=None)

    def collect(self) -> NodeOffer:
        """See SlotSource."""
        self.release()
        for rank in self._ranks:
            with suppress(BadSlot, OSError):
                self._locked[rank] = self._lock(rank)
        steps: dict[int, dict[int, int]] = {rank: {} for rank in self._ranks}
        for rank, (_, slots) in self._locked.items():
            steps[rank] = {step: slot.header.saved_unix_ns for step, slot in slots.items()}
        return NodeOffer(steps, self.root)

    @property
    def root(self) -> str:
        """Where the job keeps its checkpoints on disk; "" where no rank has said so."""
        notes = (destination.read(self._folder, rank) for rank in self._ranks)
        return next((str(note.root) for note in notes if note is not None), "")

    def _file_of(self, rank: int) -> tuple[Path, Owner]:
        owner = slot_folder.owner(self._folder, rank, self._world_size)
        return slot_folder.slots_path(self._folder, rank), owner

    def _lock(self, rank: int) -> tuple[SlotFile, dict[int, WholeSlot]]:
        file = SlotFile.open(*self._file_of(rank), writable=True)
        for slot in file.whole():
            file.lock(slot.index)
        # Again: one of them may have been given up just before it was locked. Newest last, so that
        # of two saves of the same step the later one is kept.
        return file, {slot.header.step: slot for slot in reversed(file.whole())}

    def write(self, step: int, max_bytes_per_s: float, timeout_s: float) -> Written:
        """See SlotSource."""
        # This node's own idea of the folder: what comes through the store may be anybody's.
        folder = persisted.temporary_folder(Path(self.root), step)
        slots = []
        for file, by_step in self._locked.values():
            for slot in by_step.values():
                if slot.header.step == step:
                    slots.append((file, slot))
                else:
                    file.unlock(slot.index)
        return persist_slots(slots, folder, max_bytes_per_s, timeout_s)

    def release(self) -> None:
        """See SlotSource."""
        for file, slots in self._locked.values():
            for slot in slots.values():
                file.unlock(slot.index)
            file.close()
        self._locked = {}
