"""How much memory this node's processes may still take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relkit.whole_number import whole_number

_KIB = 1 << 10


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


def room(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Room | None:
    """What there is; None where the kernel does not say.

    Args:
        proc, cgroups: where these file systems are mounted.
    """
    fields = _fields(proc / "meminfo")
    total, available = fields.get("MemTotal"), fields.get("MemAvailable")
    if not total or available is None:
        return None
    host = Room(total * _KIB, available * _KIB)
    limits = _limits(_text(proc / "self/cgroup"), cgroups)
    return min((host, *limits), key=lambda each: each.available_bytes)


def _limits(own: str, cgroups: Path) -> Iterator[Room]:
    """The limits of this process's groups (version 2), from the innermost to the root."""
    paths = [line[3:].lstrip("/") for line in own.splitlines() if line.startswith("0::")]
    folder = cgroups / paths[0] if paths else cgroups
    for each in (folder, *folder.parents):
        if not each.is_relative_to(cgroups):
            return
        limit = whole_number(_text(each / "memory.max").strip())
        used = whole_number(_text(each / "memory.current").strip())
        if limit and used is not None:
            # The page cache counts as used here, and would make room.
            cached = _fields(each / "memory.stat").get("inactive_file", 0)
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
