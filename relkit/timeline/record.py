"""Records the running ranks of a job on this host until each has done so many steps."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import (
    BadDump,
    BadInputFile,
    NoSuchProcess,
    UnwritablePath,
    UsageProblem,
)
from relkit.output import atomic_file
from relkit.process import procfs
from relkit.stacks.dump.targets import targets_of_job
from relkit.stacks.engines.base import Target
from relkit.timeline.launcher_notes import write_launcher_notes
from relkit.timeline.model import Lost, RankIdentity
from relkit.timeline.rank_recorder import RankRecorder
from relkit.timeline.recording_file import SUFFIX, file_name, read_identity

_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S = 0.05, 0.001
_NEXT = (
    "Run it on a host of the job, while it runs; JOB is the id that `relkit launch` prints. --now "
    "also reads the rings that ended ranks have left."
)
# Of the time of one core, looks may take one part in so many: the job has the others.
_COST_SHARE = 20.0
# More of a thread's ring new at a look than this: look sooner.
_FULL, _EMPTY = 0.5, 0.25


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of the recording of one rank.

    Args:
        rank: global; path: of its file; steps: that it has finished meanwhile; lost: what is
            missing; ended: the rank ended meanwhile.
    """

    rank: int
    path: Path
    steps: int
    lost: Lost
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """What came of a recording.

    Args:
        ranks: by rank; host: name; seconds: that it took.
        stopped: by Ctrl-C.
        problems: (rank, why it could not be recorded).
    """

    ranks: tuple[Recorded, ...]
    host: str
    seconds: float
    stopped: bool = False
    problems: tuple[tuple[int, str], ...] = ()


class Pause:
    """How long to wait until the next look at the rings: as long as nothing is lost."""

    def __init__(self) -> None:
        self._pause_s = _LONGEST_PAUSE_S / 4

    def next_s(self, fill: float, cost_s: float) -> float:
        """Seconds to wait.

        Args:
            fill: the largest share of a ring that was new; cost_s: CPU time that the look took, s.
        """
        if fill > _FULL:
            self._pause_s = max(_SHORTEST_PAUSE_S, self._pause_s / 2)
        elif fill < _EMPTY:
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 1.2)
        return max(self._pause_s, _COST_SHARE * cost_s)


def clock_name(host: str) -> str:
    """What ranks share whose times are of one clock: the boot of a machine, and its time namespace.

    Args:
        host: taken where the kernel does not say.
    """
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/time').readlink()}"
    return host


def record(
    job_id: str,
    folder: Path,
    steps: int | None,
    timeout_s: float,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Recording:
    """Record a job's ranks on this host into files of a folder.

    Args:
        job_id: as `relkit launch` printed it; folder: exists.
        steps: that each rank shall finish; None = what the rings hold now.
        timeout_s: for all of it, s.
        progress: (steps finished by the slowest rank, steps wanted).

    Raises:
        NoSuchProcess: no rank of it runs here under the hook.
        UnwritablePath: the folder cannot be written.
    """
    host = socket.gethostname()
    try:
        targets = [t for t in targets_of_job(job_id) if t.hook_file is not None]
    except NoSuchProcess as error:
        raise NoSuchProcess(str(error), next_step=_NEXT) from error
    alive = [t for t in targets if procfs.is_same_process(t.pid, t.start_ticks)]
    if steps is not None:
        targets = alive
    if not targets:
        raise NoSuchProcess(f"no rank of job {job_id!r} runs on this host", next_step=_NEXT)
    began_s = time.monotonic()
    with ExitStack() as files:
        recorders, problems = _open(targets, folder, host, files, from_now=steps is not None)
        if not recorders:
            raise NoSuchProcess(
                f"no recorder of job {job_id!r} could be read: {problems[0][1]}",
                next_step="Look again in a moment; `relkit doctor` tests the hook.",
            )
        stopped = False
        try:
            _follow(recorders, steps, began_s + timeout_s, progress)
        except KeyboardInterrupt:
            # What is there by now is what was wanted.
            stopped = True
        made = tuple(_end(target, each, folder) for target, each in recorders)
    write_launcher_notes(job_id, folder, host, clock_name(host))
    return Recording(made, host, time.monotonic() - began_s, stopped, tuple(problems))


def _open(
    targets: Sequence[Target], folder: Path, host: str, files: ExitStack, *, from_now: bool
) -> tuple[list[tuple[Target, RankRecorder]], list[tuple[int, str]]]:
    recorders: list[tuple[Target, RankRecorder]] = []
    problems: list[tuple[int, str]] = []
    offset_ns = time.time_ns() - time.monotonic_ns()
    for target in targets:
        identity = RankIdentity(
            target.rank, target.world_size, host, target.pid, clock_name(host), offset_ns
        )
        if target.hook_file is None:
            continue
        try:
            each = RankRecorder(target.hook_file, identity, from_now=from_now)
        except BadDump as error:
            problems.append((target.rank, str(error)))
            continue
        files.callback(each.close)
        path = folder / file_name(target.rank, target.world_size)
        each.begin(files.enter_context(atomic_file(path)))
        recorders.append((target, each))
    return recorders, problems


def _follow(
    recorders: Sequence[tuple[Target, RankRecorder]],
    steps: int | None,
    until_s: float,
    progress: Callable[[int, int], None],
) -> None:
    """Look until each rank has done its steps, has ended, or the time is over."""
    pause, going = Pause(), list(recorders)
    while going:
        began_s = time.thread_time()
        for target, each in list(going):
            try:
                each.look()
            except BadDump:
                going.remove((target, each))
        if steps is None:
            return
        done = min((each.steps_seen for _, each in going), default=steps)
        progress(min(done, steps), steps)
        going = [
            (target, each)
            for target, each in going
            if procfs.is_same_process(target.pid, target.start_ticks)
        ]
        if done >= steps or time.monotonic() >= until_s:
            return
        fill = max((each.fill for _, each in going), default=0.0)
        time.sleep(pause.next_s(fill, time.thread_time() - began_s))


def _end(target: Target, each: RankRecorder, folder: Path) -> Recorded:
    ended = not procfs.is_same_process(target.pid, target.start_ticks)
    with suppress(BadDump):
        each.look()
    try:
        lost = each.end()
    except OSError as error:
        raise UnwritablePath(f"cannot write {folder}: {os.strerror(error.errno or 0)}") from error
    path = folder / file_name(target.rank, target.world_size)
    return Recorded(target.rank, path, each.steps_seen, lost, ended)


def prepare_folder(folder: Path, *, is_replaced: bool) -> None:
    """Make a folder for recordings.

    Args:
        is_replaced: files of ranks that are there may be replaced.

    Raises:
        UsageProblem: it holds recordings of this host's ranks already.
        UnwritablePath: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = sorted(path.name for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        raise UnwritablePath(
            f"cannot write {folder}: {error.strerror}", next_step="Name another folder with -o."
        ) from error
    host = socket.gethostname()
    for name in taken:
        with suppress(BadInputFile):
            if not is_replaced and read_identity(folder / name).host == host:
                raise UsageProblem(
                    f"{folder} holds a recording of this host already ({name})",
                    next_step="Name another folder with -o, or replace it with --force.",
                )
