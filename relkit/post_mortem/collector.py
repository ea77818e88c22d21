"""Collects, on the rank's own host, what there is to know about its death."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from relkit.post_mortem.core_file import dumped_core, find_core, stack_of
from relkit.post_mortem.kernel_lines import relevant
from relkit.post_mortem.kernel_log import KernelLog, read_kernel_log
from relkit.post_mortem.last_output import last_output
from relkit.post_mortem.memory_cgroup import MemoryCgroups
from relkit.post_mortem.model import DeathEvidence
from relkit.process.procfs import has_kernels_pids

_CORE_SLACK_S = 1.0
MAX_KERNEL_LINES = 12
_OTHER_PIDS = "in a container: the kernel log has other process ids, which are not looked for"


class DeathCollector(Protocol):
    """What knows why processes of this host died."""

    def look(self, pids: Iterable[int]) -> None:
        """Called a few times a second while they live; must be cheap."""

    def evidence(self, rank: int, pid: int) -> DeathEvidence:
        """What is known of a rank whose process has ended and is not reaped; never raises."""

    def core_stack(self, core: str, timeout_s: float) -> tuple[str, ...]:
        """The stack in a core file, which may take all of this time, s; never raises."""


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """What a launcher keeps of one worker.

    Args:
        stderr: where its stderr goes, None where that is the launcher's own.
        errors: torch's error file; it need not exist.
    """

    stderr: Path | None = None
    errors: Path | None = None


class NoDeaths:
    """For a host of which nothing is to be asked."""

    def look(self, pids: Iterable[int]) -> None:
        """Nothing."""

    def evidence(self, rank: int, pid: int) -> DeathEvidence:
        """Nothing is known."""
        return DeathEvidence(kernel_log="not asked")

    def core_stack(self, core: str, timeout_s: float) -> tuple[str, ...]:
        """None."""
        return ()


NO_DEATHS = NoDeaths()


@dataclass(slots=True)
class HostDeaths:
    """Asks this host; made before the processes start, as the past is no evidence.

    Args:
        files: of each worker by rank, as far as there are some.
        cgroups: where processes run; kernel_log: reads the log.
        kernels_pids: the log has the same process ids as this host.
    """

    files: Callable[[], Mapping[int, WorkerFiles]]
    cgroups: MemoryCgroups = field(default_factory=MemoryCgroups)
    kernel_log: Callable[[], KernelLog] = read_kernel_log
    kernels_pids: bool = field(default_factory=has_kernels_pids)
    _began_unix_s: float = field(default_factory=time.time)
    _newest_us: int = -1
    _problem: str = ""

    def __post_init__(self) -> None:
        """Note where the kernel's log ends now."""
        log = self.kernel_log()
        self._newest_us, self._problem = log.newest_us, log.problem

    def look(self, pids: Iterable[int]) -> None:
        """Remember in which cgroup each of these runs."""
        self.cgroups.look(pids)

    def discount_kills(self, count: int) -> None:
        """Processes beside the ranks were killed: OOM kills counted for them are not the ranks'."""
        self.cgroups.discount_kills(count)

    def evidence(self, rank: int, pid: int) -> DeathEvidence:
        """What this host knows of a rank whose process has ended."""
        seen = self.cgroups.since(pid)
        log = self.kernel_log()
        # Without knowing where it ended, any line may be an old one.
        new = () if self._problem else log.after(self._newest_us)
        files = self.files().get(rank, WorkerFiles())
        output, source = last_output(files.stderr, files.errors)
        core = None
        if dumped_core(pid):
            core = find_core(pid, (Path.cwd(),), self._began_unix_s - _CORE_SLACK_S)
        return DeathEvidence(
            cgroup="" if seen is None else seen[0],
            oom_kills=None if seen is None else seen[1].oom_kills,
            memory_limit_bytes=0 if seen is None else seen[1].limit_bytes,
            memory_peak_bytes=0 if seen is None else seen[1].peak_bytes,
            kernel_lines=relevant(new, pid if self.kernels_pids else None)[-MAX_KERNEL_LINES:],
            kernel_log=self._problem or log.problem or ("" if self.kernels_pids else _OTHER_PIDS),
            output=output,
            output_source=source,
            core="" if core is None else str(core),
        )

    def core_stack(self, core: str, timeout_s: float) -> tuple[str, ...]:
        """The stack that gdb reads from a core file, where there is gdb."""
        return stack_of(Path(core), timeout_s)
