"""Where a checkpoint goes."""

from __future__ import annotations

from enum import Enum


class StorageType(Enum):
    """MEMORY: shared memory only. DISK: shared memory, and from there to disk."""

    MEMORY = 0
    DISK = 1
