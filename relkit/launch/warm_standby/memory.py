"""How much memory this node's processes may still take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relkit.files.input_file import read_input
from relkit.post_mortem.memory_cgroup import memory_cgroup, mounts_of
from relkit.text.whole_number import whole_number

_KIB = 1 << 10
_LIMIT_BYTES = 1 << 20
# By version: the limit, what is used, and what of that is cache in `memory.stat`.
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


def ends_together(proc: Path = Path("/proc")) -> bool:
    """Whether the kernel, out of memory, ends all processes of a group that this one is in.

    Kubernetes has it so for each container: a process that may be killed first is no help there.

    Args:
        proc: where the kernel shows processes.
    """
    return any(
        _text(folder / "memory.oom.group").strip() == "1" for _, folder in _own_folders(proc)
    )


def _own_folders(proc: Path) -> Iterator[tuple[int, Path]]:
    """Version and folder of this process's memory cgroups, from the innermost to the root."""
    mounts = mounts_of(_text(proc / "self/mountinfo"))
    own = memory_cgroup(_text(proc / "self/cgroup"), mounts)
    for folder in (own.folder, *own.folder.parents) if own is not None else ():
        if own is None or not folder.is_relative_to(mounts[own.version][1]):
            return
        yield own.version, folder


def _limits(proc: Path) -> Iterator[Room]:
    """The limits of this process's memory cgroups, from the innermost to the root."""
    for version, folder in _own_folders(proc):
        limit_file, used_file, cached = _FILES[version]
        limit = whole_number(_text(folder / limit_file).strip())
        used = whole_number(_text(folder / used_file).strip())
        if limit and used is not None:
            # The page cache counts as used here, and would make room.
            freed = _fields(folder / "memory.stat").get(cached, 0)
            yield Room(limit, max(0, limit - used + freed))


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
        return read_input(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
