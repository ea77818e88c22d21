"""The memory cgroup of a process: how often the OOM killer struck there, its limit, its peak.

A process that has ended is no longer in its cgroup (version 1 shows it in the root), and a cgroup
may have had kills before: each process is looked at while it lives, and the counter then is what
later ones are compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from relkit.files.input_file import read_input
from relkit.process.procfs import is_exiting
from relkit.text.whole_number import whole_number

_LIMIT_BYTES = 1 << 16
# Version 1 says "no limit" by the largest number of whole pages.
_NO_LIMIT_BYTES = 1 << 60
_ESCAPED = re.compile(r"\\([0-7]{3})")
_MAX_CGROUPS = 4096


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """Where the files of a process's memory cgroup are.

    Args:
        name: as /proc/PID/cgroup has it ("/slurm/job_7/task_0").
        folder: the folder of its files.
        version: 1 or 2.
    """

    name: str
    folder: Path
    version: int


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """What a memory cgroup counts.

    Args:
        oom_kills: processes in it that were ended by any OOM killer; None where that is not
            counted (the root of version 2, kernels before 4.13).
        limit_bytes: 0 for none; peak_bytes: 0 where not known.
    """

    oom_kills: int | None
    limit_bytes: int
    peak_bytes: int


def _read(path: Path) -> str:
    try:
        return read_input(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return whole_number(value.strip())
    return None


def _size(text: str) -> int:
    size_bytes = whole_number(text.strip()) or 0
    return 0 if size_bytes >= _NO_LIMIT_BYTES else size_bytes


def mounts_of(mountinfo: str) -> dict[int, tuple[str, Path]]:
    """Version -> the root that is mounted and where, from the text of /proc/self/mountinfo."""
    mounts: dict[int, tuple[str, Path]] = {}
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        fields, kind = head.split(" "), tail.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        place = (_plain(fields[3]), Path(_plain(fields[4])))
        if kind[0] == "cgroup2":
            mounts.setdefault(2, place)
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            mounts.setdefault(1, place)
    return mounts


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)


def memory_cgroup(cgroups: str, mounts: dict[int, tuple[str, Path]]) -> MemoryCgroup | None:
    """The memory cgroup of a process; None where no file of it can be reached.

    Args:
        cgroups: text of /proc/PID/cgroup; mounts: of mounts_of.
    """
    names: dict[int, str] = {}
    for line in cgroups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not name.startswith("/") or ".." in name.split("/"):
            continue
        if "memory" in controllers.split(","):
            names[1] = name
        elif not controllers:
            names[2] = name
    # Where version 1 has the memory controller, version 2's tree has no such files.
    for version in (1, 2):
        if version in names and version in mounts:
            root, place = mounts[version]
            folder = _below(place, root, names[version])
            if folder is not None:
                return MemoryCgroup(names[version], folder, version)
    return None


def _below(place: Path, root: str, name: str) -> Path | None:
    """The folder of a cgroup; in a container the mount may begin at the container's own."""
    inside = name.removeprefix(root.rstrip("/")) if root != "/" else name
    inner = place / inside.lstrip("/")
    # Where a cgroup has no memory controller of its own, that of the next one above it counts.
    for folder in (inner, *inner.parents):
        if not folder.is_relative_to(place):
            return None
        if (folder / "memory.oom_control").exists() or (folder / "memory.events").exists():
            return folder
    return None


def counters(cgroup: MemoryCgroup) -> MemoryCounters:
    """What it counts now; nothing where it has been removed."""
    folder = cgroup.folder
    if cgroup.version == 1:
        return MemoryCounters(
            _field(_read(folder / "memory.oom_control"), "oom_kill"),
            _size(_read(folder / "memory.limit_in_bytes")),
            _size(_read(folder / "memory.max_usage_in_bytes")),
        )
    return MemoryCounters(
        _field(_read(folder / "memory.events"), "oom_kill"),
        _size(_read(folder / "memory.max")),
        _size(_read(folder / "memory.peak")),
    )


class MemoryCgroups:
    """The memory cgroups of some processes over time.

    Args:
        proc: where the kernel shows processes.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._mounts = mounts_of(_read(proc / "self/mountinfo"))
        self._names: dict[int, str] = {}
        self._cgroups: dict[int, MemoryCgroup] = {}
        self._before: dict[Path, int | None] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Remember the cgroup of each of these that lives, and what was counted there at first."""
        for pid in pids:
            text = _read(self._proc / str(pid) / "cgroup")
            if not text or self._names.get(pid) == text or self._is_ending(pid):
                continue
            cgroup = memory_cgroup(text, self._mounts)
            if cgroup is None or len(self._before) >= _MAX_CGROUPS:
                continue
            self._names[pid], self._cgroups[pid] = text, cgroup
            if cgroup.folder not in self._before:
                self._before[cgroup.folder] = counters(cgroup).oom_kills

    def discount_kills(self, count: int) -> None:
        """Leave so many kills out of what is counted, as far as they have been counted by now.

        Args:
            count: of processes that have run in the same cgroups and are not asked about.
        """
        for cgroup in {each.folder: each for each in list(self._cgroups.values())}.values():
            before, now = self._before.get(cgroup.folder), counters(cgroup).oom_kills
            if before is not None and now is not None:
                self._before[cgroup.folder] = min(now, before + count)

    def _is_ending(self, pid: int) -> bool:
        """It has been killed, but may still be giving its memory back; or it is gone.

        To be asked after its cgroup: version 1 shows a process that ends in the root already.
        """
        return is_exiting(_read(self._proc / str(pid) / "stat"))

    def since(self, pid: int) -> tuple[str, MemoryCounters] | None:
        """The cgroup a process was last seen in, its counters now, and the kills since it was.

        Returns:
            The name, and counters whose `oom_kills` has only those since; None for a process that
            has never been seen.
        """
        cgroup = self._cgroups.get(pid)
        if cgroup is None:
            return None
        now, before = counters(cgroup), self._before.get(cgroup.folder)
        kills = None if now.oom_kills is None else max(0, now.oom_kills - (before or 0))
        return cgroup.name, MemoryCounters(kills, now.limit_bytes, now.peak_bytes)
