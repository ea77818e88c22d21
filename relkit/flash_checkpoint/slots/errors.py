"""Errors of checkpoints in memory. None of them ends a job."""

from __future__ import annotations

from enum import Enum

from relkit.errors import RelkitError


class SlotFault(str, Enum):
    """Why a slot is refused."""

    EMPTY = "empty"
    TORN = "torn"
    TRUNCATED = "truncated"
    FOREIGN = "foreign"
    OTHER_VERSION = "of another version"
    DAMAGED = "damaged"

    def __str__(self) -> str:
        return self.value


class BadSlot(RelkitError):
    """A slot, or a file of slots, that cannot be used.

    Args:
        fault: kind of fault.
        message: what is wrong.
    """

    next_step = "Older slots and the checkpoints on disk are still used."

    def __init__(self, fault: SlotFault, message: str) -> None:
        super().__init__(f"{message} ({fault})")
        self.fault = fault


class NoRoom(RelkitError):
    """Shared memory is too small for the slots of a rank."""

    next_step = (
        "Enlarge /dev/shm (docker --shm-size, or an emptyDir of medium Memory); until then"
        " checkpoints go to disk only."
    )


class NotPlain(RelkitError):
    """A state holds an object that is neither a tensor nor a plain value."""

    next_step = "Save tensors, arrays, numbers, text, and containers of them."


class ChangedWhileCopied(RelkitError):
    """Tensors were changed while they were copied: the slot is not used."""

    next_step = (
        "The previous save is kept. Wait for a save (`save_checkpoint(...).wait()`) before changing"
        " tensors outside an optimizer's step."
    )


class SlotsUnavailable(RelkitError):
    """The native library of flash checkpoints is missing, or of another version."""

    next_step = "Run `relkit doctor`; in a checkout, `pip install .` builds it."
