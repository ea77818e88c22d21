"""Tests of speed go before whatever else this machine does, in a CPU cgroup of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_PREFIX = "relkit-test-"
# The largest that the kernel takes.
_V1_SHARES, _V2_WEIGHT = "262144", "10000"


@pytest.fixture(autouse=True)
def before_others() -> Iterator[None]:
    """Processes that the test starts get the cores that they ask for, on a busy machine too."""
    root = _V1 if _V1.is_dir() else _V2
    _remove_left_over(root)
    with ExitStack() as undo:
        # Where cgroups cannot be written, as by a user, the test shares the cores with the others.
        with suppress(OSError):
            _enter(root, undo)
        yield


def _enter(root: Path, undo: ExitStack) -> None:
    own, folder = root / _own_cgroup() / "cgroup.procs", root / f"{_PREFIX}{os.getpid()}"
    folder.mkdir(exist_ok=True)
    undo.callback(folder.rmdir)
    if root == _V1:
        (folder / "cpu.shares").write_text(_V1_SHARES)
    else:
        control = root / "cgroup.subtree_control"
        if "cpu" not in control.read_text().split():
            control.write_text("+cpu")
            undo.callback(control.write_text, "-cpu")
        (folder / "cpu.weight").write_text(_V2_WEIGHT)
    undo.callback(_move, folder / "cgroup.procs", own)
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def _move(source: Path, target: Path) -> None:
    for pid in source.read_text().split():
        with suppress(ProcessLookupError):
            target.write_text(pid)


def _remove_left_over(root: Path) -> None:
    """Remove the cgroups of runs that were killed."""
    for folder in root.glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX)).exists():
            # Not those that still have processes.
            with suppress(OSError):
                folder.rmdir()


def _own_cgroup() -> str:
    """This process's CPU cgroup, relative to the hierarchy's root."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if ("cpu" in controllers.split(",")) if _V1.is_dir() else not controllers:
            return path.strip("/")
    return ""
