"""How much memory a process holds."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Resident memory; 0 where the process is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
