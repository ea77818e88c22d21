"""All standbys of one launcher: made before a start of workers, used at it, gone with the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relkit.launch.job.settings import Log
from relkit.launch.warm_standby.handover import WorkerCommand, is_python
from relkit.launch.warm_standby.memory import MemoryLimits
from relkit.launch.warm_standby.seen_imports import (
    NothingSeen,
    SeenImports,
    Signatures,
    quiet_s,
    seen_imports,
)
from relkit.launch.warm_standby.standby import HandOverFailed, Ready, Standby

# They import while the job trains: so many at a time leave it most of the cores.
_CORES_EACH = 4
# The first steps import more; a worker that has noted nothing for so long is taken to have it all.
_SETTLED_S = 2.0
# One that has failed this often for a local rank will fail again.
_MAX_FAILURES = 3
_MB = 1e6


class StandbyProcess(Protocol):
    """What is expected of a Standby."""

    ready: Ready | None

    @property
    def was_killed(self) -> bool: ...
    def start(self) -> None: ...
    def look(self) -> str: ...
    def hurry(self) -> None: ...
    def hand_over(
        self,
        worker: WorkerCommand,
        descriptors: Sequence[tuple[int, int]],
        files: Signatures | None = None,
    ) -> subprocess.Popen[bytes]: ...
    def end(self) -> None: ...


class Make(Protocol):
    """Makes a standby that is not yet started; see Standby."""

    def __call__(
        self, command: WorkerCommand, seen: SeenImports, *, hurry: bool
    ) -> StandbyProcess: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """Standbys that wait.

    Args:
        processes: how many; pss_bytes: the memory of the largest.
    """

    processes: int
    pss_bytes: int

    def __str__(self) -> str:
        each = "each" if self.processes > 1 else "of memory"
        return f"{self.processes} process{'es' if self.processes > 1 else ''}, " + (
            f"{self.pss_bytes / _MB:,.0f} MB {each} (PSS)" if self.pss_bytes else "memory not known"
        )


class Standbys:
    """Call look() a few times a second, start() for each worker, close() at the end; all of it in
    the launcher's main thread, with which the kernel ends them.

    `used` says how many workers of the newest start were standbys.

    Args:
        is_wanted: they are made, as far as there is room.
        log: one line to the terminal.
        on_complete: told their number and the memory of the largest, bytes, once all wait.
        make: makes a standby that is not yet started, and may be told to hurry.
        memory: whether there is room for them.
        cores: that this process may use.
    """

    def __init__(
        self,
        is_wanted: bool,
        log: Log,
        on_complete: Callable[[int, int], None] = lambda _processes, _pss_bytes: None,
        *,
        make: Make = Standby,
        memory: MemoryLimits | None = None,
        cores: int | None = None,
    ) -> None:
        self.is_wanted, self._log, self._make = is_wanted, log, make
        self._memory = memory or MemoryLimits()
        self._on_complete = on_complete
        self._cores = cores or len(os.sched_getaffinity(0))
        self._commands: dict[int, WorkerCommand] = {}
        self._standbys: dict[int, StandbyProcess] = {}
        self._notes: dict[int, Path] = {}
        self._seen: dict[int, SeenImports | None] = {}
        self._files = Signatures()
        self._failures: dict[int, int] = {}
        self._said: set[str] = set()
        self._is_announced = False
        self.used = 0

    @property
    def summary(self) -> Summary | None:
        """What waits, once one waits for every worker of this node; None before."""
        ready = [each.ready for each in self._standbys.values() if each.ready is not None]
        without = sum(self._seen.get(local_rank, ()) is None for local_rank in self._commands)
        if not ready or len(ready) + without < len(self._commands):
            return None
        return Summary(len(ready), max(each.pss_bytes for each in ready))

    def begin(self) -> None:
        """Workers are about to be started."""
        self.used = 0
        # Of all ranks at once: they import the same files.
        self._files = Signatures()

    def watch(self, folder: Path, pids: Mapping[int, int]) -> None:
        """Workers have been started.

        Args:
            folder: in which they note their imports; pids: local rank -> process.
        """
        for local_rank, pid in pids.items():
            # One that was a standby notes nothing; what is known of the one before it holds.
            if local_rank not in self._seen:
                self._notes[local_rank] = folder / f"{pid}.imports"

    def start(
        self, local_rank: int, worker: WorkerCommand, descriptors: Sequence[tuple[int, int]]
    ) -> subprocess.Popen[bytes] | None:
        """Have the standby of a local rank become its worker.

        Args:
            worker: the command that torch would start; descriptors: see `Standby.hand_over`.

        Returns:
            The process; None where a plain start is to take place.
        """
        standby = self._standbys.pop(local_rank, None)
        if self.is_wanted:
            if is_python(worker.argv[0]):
                self._commands[local_rank] = worker
            else:
                self._leave_out(f"{worker.argv[0]} is no Python interpreter")
        if standby is None:
            self._seen.pop(local_rank, None)
            return None
        try:
            process = standby.hand_over(worker, descriptors, self._files)
        except HandOverFailed as why:
            self._seen.pop(local_rank, None)
            self._log(f"local rank {local_rank} is started anew, its standby was not used: {why}")
            return None
        self.used += 1
        return process

    def look(self, *, may_start: bool) -> int:
        """See how far they are, and start what is missing.

        Args:
            may_start: the job trains, and there is a restart left.

        Returns:
            How many have been ended by SIGKILL, as the kernel's OOM killer does it.
        """
        killed = 0
        for local_rank, standby in list(self._standbys.items()):
            if why := standby.look():
                killed += standby.was_killed
                self._drop(local_rank, standby, why)
        self._leave_room()
        summary = self.summary
        if summary is not None and not self._is_announced:
            self._announce(summary)
        self._is_announced = summary is not None
        if may_start and self.is_wanted:
            self._start_missing(max(1, self._cores // _CORES_EACH))
        return killed

    def _leave_room(self) -> None:
        """Memory has become short: the job may want what the standbys take."""
        why = self._memory.why_to_end() if self._standbys else ""
        if not why:
            return
        standbys, self._standbys = list(self._standbys.values()), {}
        for standby in standbys:
            standby.end()
        self._say(f"warm standby: ended, as {why}")

    def hurry(self) -> None:
        """Workers will be started soon, and none of them runs any more.

        Those that still import take the cores now, and those that are missing begin at once.
        """
        for standby in self._standbys.values():
            standby.hurry()
        if self.is_wanted:
            self._start_missing(len(self._commands), hurry=True)

    def close(self) -> None:
        """End all of them; none is made any more."""
        self.is_wanted = False
        standbys, self._standbys = list(self._standbys.values()), {}
        for standby in standbys:
            standby.end()

    def _start_missing(self, at_once: int, *, hurry: bool = False) -> None:
        importing = sum(each.ready is None for each in self._standbys.values())
        for local_rank, command in sorted(self._commands.items()):
            if importing >= at_once:
                return
            if local_rank in self._standbys or self._failures.get(local_rank, 0) >= _MAX_FAILURES:
                continue
            seen = self._what_was_seen(local_rank, hurry=hurry)
            if seen is None:
                continue
            if why := self._memory.why_none_is_made():
                self._leave_out(why)
                return
            standby = self._make(command, seen, hurry=hurry)
            self._standbys[local_rank] = standby
            try:
                standby.start()
            except (OSError, ValueError) as error:
                self._drop(local_rank, standby, f"it cannot be started: {error}")
                return
            importing += 1

    def _what_was_seen(self, local_rank: int, *, hurry: bool) -> SeenImports | None:
        notes = self._notes.get(local_rank)
        if notes is not None and (hurry or quiet_s(notes) > _SETTLED_S):
            del self._notes[local_rank]
            try:
                self._seen[local_rank] = seen_imports(notes)
            except NothingSeen as why:
                self._seen[local_rank] = None
                self._leave_out(str(why))
        return self._seen.get(local_rank)

    def _drop(self, local_rank: int, standby: StandbyProcess, why: str) -> None:
        self._standbys.pop(local_rank, None)
        standby.end()
        self._failures[local_rank] = self._failures.get(local_rank, 0) + 1
        self._say(f"warm standby for local rank {local_rank} given up: {why}")

    def _announce(self, summary: Summary) -> None:
        self._on_complete(summary.processes, summary.pss_bytes)
        self._say(f"warm standby: {summary}; --no-warm-standby leaves them out")
        for stopped in sorted({each.stopped for each in self._seen.values() if each}):
            if stopped:
                self._say(f"warm standby: {stopped}")

    def _leave_out(self, why: str) -> None:
        self._say(f"warm standby: none is made: {why}")

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._log(line)
