"""Where a checkpoint goes."""

from __future__ import annotations

from enum import Enum


class StorageType(Enum):
    """MEMORY: into shared memory only. DISK: there too, and from there to disk."""

    MEMORY = 0
    DISK = 1
