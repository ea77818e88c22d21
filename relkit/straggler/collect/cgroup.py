"""How long the kernel has kept a process from running because its cgroup's share was used up."""

from __future__ import annotations

import re
from functools import lru_cache
from io import FileIO
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_LINE = re.compile(rb"^throttled_(usec|time) (\d{1,19})$", re.MULTILINE)


def throttled_s(pid: int, proc: Path = _PROC, root: Path = _ROOT) -> float | None:
    """Seconds so far that the process's cgroups were throttled; None where nobody counts it.

    Version 1 counts every core of a cgroup for itself, version 2 does not. Of nested groups the
    one with the most is taken: any of them can stop the process.

    Args:
        pid: a process of this host; proc, root: where /proc and the cgroups are mounted.
    """
    try:
        with FileIO(f"{proc}/{pid}/cgroup") as stream:
            groups = stream.readall()
    except OSError:
        return None
    totals_s = [seconds for seconds in map(_read, _files(groups, root)) if seconds is not None]
    return max(totals_s, default=None)


@lru_cache(maxsize=64)
def _files(groups: bytes, root: Path) -> tuple[str, ...]:
    """What may count for a process of these cgroups; a process changes them seldom."""
    files: list[str] = []
    for line in groups.decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in path.split("/"):
            continue
        if not controllers:
            tops = [root, root / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [root / controllers, root / "cpu"]
        else:
            continue
        for top in tops:
            files += _up_from(top, path)
    return tuple(dict.fromkeys(files))


def _up_from(top: Path, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return [str(top.joinpath(*parts[:many], "cpu.stat")) for many in range(len(parts), -1, -1)]


def _read(file: str) -> float | None:
    try:
        with FileIO(file) as stream:
            match = _LINE.search(stream.readall())
    except OSError:
        return None
    if match is None:
        return None
    return int(match[2]) / (1e6 if match[1] == b"usec" else 1e9)
