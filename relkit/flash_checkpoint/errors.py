"""What can go wrong with a checkpoint in memory; none of it ends a job."""

from __future__ import annotations

from enum import Enum

from relkit.errors import RelkitError


class SlotFault(str, Enum):
    """Why a slot is not used."""

    EMPTY = "empty"
    TORN = "torn"
    TRUNCATED = "truncated"
    FOREIGN = "foreign"
    OTHER_VERSION = "of another version"
    DAMAGED = "damaged"

    def __str__(self) -> str:
        return self.value


class BadSlot(RelkitError):
    """A slot, or a file of slots, that is not used.

    Args:
        fault: the kind of fault.
        message: what is wrong with it.
    """

    next_step = "Nothing is lost on disk: the job resumes from there."

    def __init__(self, fault: SlotFault, message: str) -> None:
        super().__init__(f"{message} ({fault})")
        self.fault = fault


class NoRoom(RelkitError):
    """Shared memory is too small for the slots of a rank."""

    next_step = (
        "Give the container or host more of it (docker --shm-size, a larger emptyDir of medium"
        " Memory); until then checkpoints go to disk only."
    )


class NotPlain(RelkitError):
    """A state holds something that is neither a tensor nor a plain value."""

    next_step = "Save tensors, numbers, text and containers of them; no objects of classes."


class ChangedWhileCopied(RelkitError):
    """Tensors were written to while they were copied: the slot is not used."""

    next_step = (
        "The save before it is kept. Wait for the save (`save_checkpoint(...).wait()`) before"
        " writing to tensors outside an optimizer's step."
    )


class SlotsUnavailable(RelkitError):
    """The native library of flash checkpoints is not built, or does not fit."""

    next_step = "Run `relkit doctor`; in a checkout, `pip install .` builds it."
