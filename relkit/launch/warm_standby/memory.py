"""How much memory this node's processes may still take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from relkit.files.input_file import read_input
from relkit.post_mortem.memory_cgroup import memory_cgroup, mounts_of
from relkit.text.whole_number import whole_number

# With less memory than this share available, none is made: the job may want it.
MIN_FREE_SHARE = 0.2
# With less than this, those that wait are ended.
MIN_LEFT_SHARE = 0.1
_MEASURE_S = 1.0
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


def room_now(proc: Path = Path("/proc")) -> Room | None:
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


class MemoryLimits:
    """Whether the job leaves room for processes that only wait.

    Args:
        room: this node's memory.
        ends_together: whether a process that is killed for memory takes the job with it.
        clock: monotonic, s.
    """

    def __init__(
        self,
        room: Callable[[], Room | None] | None = None,
        ends_together: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._room, self._clock = room or room_now, clock
        self._ends_together = ends_together or ends_together_now
        self._measured_s = -math.inf

    def why_none_is_made(self) -> str:
        """Why there is no room for another one; "" where there is."""
        if self._ends_together():
            return "where memory runs out here, the kernel ends all processes (memory.oom.group)"
        room = self._room()
        if room is None or room.free_share >= MIN_FREE_SHARE:
            return ""
        return (
            f"{room.free_share:.0%} of the memory is available, and less than "
            f"{MIN_FREE_SHARE:.0%} is left to the job alone"
        )

    def why_to_end(self) -> str:
        """Why those that wait have to go; "" where they may stay, or that was asked just now."""
        now_s = self._clock()
        if now_s - self._measured_s < _MEASURE_S:
            return ""
        self._measured_s = now_s
        room = self._room()
        if room is None or room.free_share >= MIN_LEFT_SHARE:
            return ""
        return f"{room.free_share:.0%} of the memory is available"


def ends_together_now(proc: Path = Path("/proc")) -> bool:
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
