"""Tests of speed go before whatever else this machine does, in a CPU cgroup of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
# The largest that the kernel takes.
_V1_SHARES, _V2_WEIGHT = "262144", "10000"


@pytest.fixture(autouse=True)
def before_others() -> Iterator[None]:
    """Processes that the test starts get the cores that they ask for, on a busy machine too."""
    if os.geteuid() != 0:
        yield
        return
    folder = (_V1 if _V1.is_dir() else _V2) / f"relkit-test-{os.getpid()}"
    own = folder.parent / _own_cgroup() / "cgroup.procs"
    folder.mkdir()
    try:
        if _V1.is_dir():
            (folder / "cpu.shares").write_text(_V1_SHARES)
        else:
            (_V2 / "cgroup.subtree_control").write_text("+cpu")
            (folder / "cpu.weight").write_text(_V2_WEIGHT)
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                own.write_text(pid)
        folder.rmdir()


def _own_cgroup() -> str:
    """This process's CPU cgroup, relative to the hierarchy's root."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == ("cpu" if _V1.is_dir() else "") or "cpu" in controllers.split(","):
            return path.strip("/")
    return ""
