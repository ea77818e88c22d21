"""How long the kernel has kept a process from running because its cgroup's share was used up."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def throttled_s(pid: int, proc: Path = _PROC, root: Path = _ROOT) -> float | None:
    """Seconds so far that the process's cgroups were throttled; None where nobody counts it.

    Version 1 counts every core of a cgroup for itself, version 2 does not. Of nested groups the
    one with the most is taken: any of them can stop the process.

    Args:
        pid: a process of this host; proc, root: where /proc and the cgroups are mounted.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    found: list[float] = []
    for line in lines:
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
            found += _up_from(top, path)
    return max(found, default=None)


def _up_from(top: Path, path: str) -> list[float]:
    parts = [part for part in path.split("/") if part]
    found = []
    while True:
        seconds = _read(top.joinpath(*parts) / "cpu.stat")
        if seconds is not None:
            found.append(seconds)
        if not parts:
            return found
        parts.pop()


def _read(file: Path) -> float | None:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^throttled_(usec|time) (\d{1,19})$", text, re.MULTILINE)
    if match is None:
        return None
    return int(match[2]) / (1e6 if match[1] == "usec" else 1e9)
