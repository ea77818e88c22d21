"""Which process is meant: a bare number is another process's in another PID namespace, or later.

Nothing is sent to a process, and nothing is said of it, by its number alone. Where its namespace
or its start time cannot be known, it is nobody that can be seen from here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from relkit.process import procfs

# Of one that was not found so far: it may be hidden, and to look through /proc takes a while.
_LOOK_AGAIN_S = 5.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of this host, whoever asks.

    Args:
        pid: the number by which it knows itself.
        start_ticks: its start time (field 22 of /proc/PID/stat); 0 = not known.
        namespace: inode of its PID namespace; 0 = not known.
    """

    pid: int
    start_ticks: int
    namespace: int

    def to_text(self) -> str:
        """As a variable that may come to another host: PID/START/NAMESPACE/BOOT."""
        return f"{self.pid}/{self.start_ticks}/{self.namespace}/{_boot_id()}"


def own_identity() -> ProcessIdentity:
    """This process."""
    pid = os.getpid()
    return ProcessIdentity(pid, procfs.start_ticks(pid), own_namespace())


def own_namespace() -> int:
    """Inode of the PID namespace whose numbers this process uses; 0 where that is not known."""
    return procfs.pid_namespace(os.getpid())


def own_name() -> str:
    """The number of this process, with its PID namespace where that is a container's.

    Containers may share /dev/shm, and have processes of the same number.
    """
    inside = "" if procfs.has_kernels_pids() else f"-{own_namespace()}"
    return f"{os.getpid()}{inside}"


def name_of(pid: int) -> str:
    """As a worker names the files that it leaves its launcher; "" where it cannot be seen.

    bootstrap/worker/sitecustomize.py has it too: the number and the PID namespace that it knows.

    Args:
        pid: its number here.
    """
    number = procfs.own_number(pid)
    return f"{number}.{procfs.pid_namespace(pid)}" if number else ""


@lru_cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class ProcessFinder:
    """Finds processes of other PID namespaces by the numbers that they have here.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Those that were asked for, ended ones too, and all that were seen at the last look.
        self._known: dict[ProcessIdentity, int] = {}
        self._seen: dict[ProcessIdentity, int] = {}
        self._next_look_s = -_LOOK_AGAIN_S

    def number_of(self, identity: ProcessIdentity) -> int | None:
        """The number of a process here; None where it is not known or cannot be seen.

        It may have ended since it was found: its start time tells, as ever.
        """
        ours = own_namespace()
        if not identity.start_ticks:
            return None
        if not ours or not identity.namespace:
            # Where no process of this host says it, the start time alone has to.
            is_same = procfs.is_same_process(identity.pid, identity.start_ticks)
            return identity.pid if ours == identity.namespace and is_same else None
        if identity.namespace == ours:
            return identity.pid
        if identity not in self._known:
            if identity not in self._seen and self._clock() >= self._next_look_s:
                self._seen = dict(_elsewhere())
                self._next_look_s = self._clock() + _LOOK_AGAIN_S
            if identity not in self._seen:
                return None
            self._known[identity] = self._seen[identity]
        return self._known[identity]


def _elsewhere() -> Iterator[tuple[ProcessIdentity, int]]:
    """All processes that can be seen, and are in another PID namespace than this one."""
    ours = own_namespace()
    for pid in procfs.all_pids():
        namespace = procfs.pid_namespace(pid)
        if namespace in (0, ours):
            continue
        identity = ProcessIdentity(procfs.own_number(pid), procfs.start_ticks(pid), namespace)
        if identity.pid and identity.start_ticks:
            yield identity, pid
