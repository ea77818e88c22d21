"""All standbys of one launcher: made before a start of workers, used at it, gone with the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relkit.launch.job.settings import Log
from relkit.launch.warm_standby import memory
from relkit.launch.warm_standby.handover import WorkerCommand, is_python
from relkit.launch.warm_standby.memory import Room
from relkit.launch.warm_standby.standby import HandOverFailed, Ready, Standby, Target

# With less memory than this share available, none is made: the job may want it.
MIN_FREE_SHARE = 0.2
# They import while the job trains: so many at a time leave it most of the cores.
_CORES_EACH = 4
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
    def hand_over(
        self, worker: WorkerCommand, descriptors: Sequence[tuple[int, int]]
    ) -> subprocess.Popen[bytes]: ...
    def end(self) -> None: ...


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
        target: what workers run; None where standbys are not wanted, or not possible.
        log: one line to the terminal.
        on_complete: told their number and the memory of the largest, bytes, once all wait.
        make: makes a standby that is not yet started.
        room: this node's memory.
        cores: that this process may use.
    """

    def __init__(
        self,
        target: Target | None,
        log: Log,
        on_complete: Callable[[int, int], None] = lambda _processes, _pss_bytes: None,
        *,
        make: Callable[[WorkerCommand, Target], StandbyProcess] = Standby,
        room: Callable[[], Room | None] = memory.room,
        cores: int | None = None,
    ) -> None:
        self._target, self._log, self._make, self._room = target, log, make, room
        self._on_complete = on_complete
        self._cores = cores or len(os.sched_getaffinity(0))
        self._commands: dict[int, WorkerCommand] = {}
        self._standbys: dict[int, StandbyProcess] = {}
        self._failures: dict[int, int] = {}
        self._said: set[str] = set()
        self._is_announced = False
        self.used = 0

    @property
    def summary(self) -> Summary | None:
        """What waits, once one waits for every worker of this node; None before."""
        ready = [each.ready for each in self._standbys.values() if each.ready is not None]
        if not ready or len(ready) < len(self._commands):
            return None
        return Summary(len(ready), max(each.pss_bytes for each in ready))

    @property
    def is_wanted(self) -> bool:
        """They are made, as far as there is room."""
        return self._target is not None

    def expect(self, commands: Mapping[int, WorkerCommand]) -> None:
        """Workers will be started some time, and none has been yet.

        Args:
            commands: local rank -> how, as far as that is known.
        """
        programs = {command.argv[0] for command in commands.values()}
        if self._target is None or self._commands or not all(map(is_python, programs)):
            return
        self._commands = dict(commands)

    def begin(self) -> None:
        """Workers are about to be started."""
        self.used = 0

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
        if self._target is not None:
            if is_python(worker.argv[0]):
                self._commands[local_rank] = worker
            else:
                self._leave_out(f"{worker.argv[0]} is no Python interpreter")
        if standby is None:
            return None
        try:
            process = standby.hand_over(worker, descriptors)
        except HandOverFailed as why:
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
        summary = self.summary
        if summary is not None and not self._is_announced:
            self._announce(summary)
        self._is_announced = summary is not None
        if may_start and self._target is not None:
            self._start_missing(self._target)
        return killed

    def close(self) -> None:
        """End all of them; none is made any more."""
        self._target = None
        standbys, self._standbys = list(self._standbys.values()), {}
        for standby in standbys:
            standby.end()

    def _start_missing(self, target: Target) -> None:
        importing = sum(each.ready is None for each in self._standbys.values())
        for local_rank, command in sorted(self._commands.items()):
            if importing >= max(1, self._cores // _CORES_EACH):
                return
            if local_rank in self._standbys or self._failures.get(local_rank, 0) >= _MAX_FAILURES:
                continue
            room = self._room()
            if room is not None and room.free_share < MIN_FREE_SHARE:
                self._leave_out(
                    f"{room.free_share:.0%} of the memory is available, and less than "
                    f"{MIN_FREE_SHARE:.0%} is left to the job alone"
                )
                return
            standby = self._make(command, target)
            self._standbys[local_rank] = standby
            try:
                standby.start()
            except (OSError, ValueError) as error:
                self._drop(local_rank, standby, f"it cannot be started: {error}")
                return
            importing += 1

    def _drop(self, local_rank: int, standby: StandbyProcess, why: str) -> None:
        self._standbys.pop(local_rank, None)
        standby.end()
        self._failures[local_rank] = self._failures.get(local_rank, 0) + 1
        self._say(f"warm standby for local rank {local_rank} given up: {why}")

    def _announce(self, summary: Summary) -> None:
        self._on_complete(summary.processes, summary.pss_bytes)
        self._say(f"warm standby: {summary}; --no-warm-standby leaves them out")
        for stopped in _reasons(self._standbys):
            self._say(f"warm standby: {stopped}")

    def _leave_out(self, why: str) -> None:
        self._say(f"warm standby: none is made: {why}")

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._log(line)


def _reasons(standbys: Mapping[int, StandbyProcess]) -> list[str]:
    ready = [each.ready for each in standbys.values() if each.ready is not None]
    return sorted({each.stopped for each in ready if each.stopped})
