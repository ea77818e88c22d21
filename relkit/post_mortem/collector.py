"""Collects, on the rank's own host, what there is to know about its death."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from relkit.files.input_file import open_input, read_input_text
from relkit.post_mortem.core_file import dumped_core, find_core, stack_of
from relkit.post_mortem.kernel_lines import relevant
from relkit.post_mortem.kernel_log import KernelLog, read_kernel_log
from relkit.post_mortem.memory_cgroup import MemoryCgroups
from relkit.post_mortem.model import MAX_LINES, DeathEvidence, safe_lines
from relkit.post_mortem.raised_note import raised_note
from relkit.process.procfs import has_kernels_pids
from relkit.text.foreign_json import parse_json

_CORE_SLACK_S = 1.0
MAX_KERNEL_LINES = 12
_OTHER_PIDS = "in a container: the kernel log has other process ids, which are not looked for"
_TAIL_BYTES = 1 << 14
_ERROR_FILE_BYTES = 16 << 20
_SHOWN_LINES = 20


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
        notes: the folder where ranks leave word of the exceptions that end them; None for none.
    """

    files: Callable[[], Mapping[int, WorkerFiles]]
    cgroups: MemoryCgroups = field(default_factory=MemoryCgroups)
    kernel_log: Callable[[], KernelLog] = read_kernel_log
    kernels_pids: bool = field(default_factory=has_kernels_pids)
    notes: Path | None = None
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
        note = raised_note(self.notes, pid)
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
            raised=note.error,
            raised_at=note.place,
            raised_unix_s=note.unix_s,
            core="" if core is None else str(core),
        )

    def core_stack(self, core: str, timeout_s: float) -> tuple[str, ...]:
        """The stack that gdb reads from a core file, where there is gdb."""
        return stack_of(Path(core), timeout_s)


def tail(path: Path) -> tuple[str, ...]:
    """The last lines of a file, each safe to print; () where it is empty or cannot be read."""
    try:
        with open_input(path, 0) as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - _TAIL_BYTES))
            text = (stream.read(_TAIL_BYTES) or b"").decode("utf-8", "replace")
    except OSError:
        return ()
    lines = text.splitlines()
    if size > _TAIL_BYTES:
        lines = lines[1:]
    return safe_lines([line for line in lines if line.strip()][-_SHOWN_LINES:])


def traceback_of(path: Path) -> tuple[str, ...]:
    """The end of the traceback in torch's error file; () where there is none."""
    try:
        plain = parse_json(read_input_text(path, _ERROR_FILE_BYTES))
    except (OSError, ValueError):
        return ()
    message = plain.get("message") if isinstance(plain, dict) else None
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    text = extra.get("py_callstack") if isinstance(extra, dict) else None
    lines = text.splitlines() if isinstance(text, str) else []
    return safe_lines([line for line in lines if line.strip()][-min(_SHOWN_LINES, MAX_LINES) :])


def last_output(stderr_file: Path | None, error_file: Path | None) -> tuple[tuple[str, ...], str]:
    """The last lines of a worker and the file that they are from; ((), "") for none.

    Args:
        stderr_file: where the launcher has sent its stderr; None where it has not.
        error_file: torch's, which holds the traceback where the script uses `record`.
    """
    for path, read in ((stderr_file, tail), (error_file, traceback_of)):
        if path is not None and (lines := read(path)):
            return lines, str(path)
    return (), ""
