"""How much memory this node's processes may still take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relkit.post_mortem.memory_cgroup import memory_cgroup, mounts_of
from relkit.whole_number import whole_number

_KIB = 1 << 10
# By version: the files of the limit and of what is used, and the line that says what is cache.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of the host, or of the tightest limit that this process is under.

    Args:
        total_bytes: in all; available_bytes: that could be taken without swapping.
    """

    total_bytes: int
    available_bytes: int

    @property
    def free_share(self) -> float:
        """Of all memory, 0 to 1."""
        return self.available_bytes / self.total_bytes if self.total_bytes > 0 else 0.0


def room(proc: Path = Path("/proc")) -> Room | None:
    """What there is; None where the kernel does not say.

    Args:
        proc: where the kernel shows processes.
    """
    fields = _fields(proc / "meminfo")
    total, available = fields.get("MemTotal"), fields.get("MemAvailable")
    if not total or available is None:
        return None
    host = Room(total * _KIB, available * _KIB)
    return min((host, *_limits(proc)), key=lambda each: each.available_bytes)


def _limits(proc: Path) -> Iterator[Room]:
    """The limits of this process's memory cgroups, from the innermost to the root."""
    own = memory_cgroup(_text(proc / "self/cgroup"), mounts_of(_text(proc / "self/mountinfo")))
    if own is None:
        return
    most, now, cache = _FILES[own.version]
    for folder in (own.folder, *own.folder.parents):
        limit = whole_number(_text(folder / most).strip())
        used = whole_number(_text(folder / now).strip())
        if limit and used is not None:
            # The page cache counts as used here, and would make room.
            cached = _fields(folder / "memory.stat").get(cache, 0)
            yield Room(limit, max(0, limit - used + cached))


def _fields(path: Path) -> dict[str, int]:
    fields = {}
    for line in _text(path).splitlines():
        words = line.split()
        number = whole_number(words[1]) if len(words) > 1 else None
        if number is not None:
            fields[words[0].rstrip(":")] = number
    return fields


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
