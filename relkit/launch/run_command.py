"""`relkit run`: any launcher's command on this node, under the same hook and monitor."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from relkit.errors import EXIT_PROBLEM, UsageProblem
from relkit.files.private_file import open_private
from relkit.launch.hang.attempt import WatchedRanks
from relkit.launch.hang.monitor import Monitor
from relkit.launch.hang.observe import Observer
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.looks import Looks
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import ExitStatus, Log
from relkit.post_mortem.collector import HostDeaths
from relkit.process import procfs

POLL_S = 0.1
DISCOVER_S = 1.0
GRACE_S = 5.0
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)


class Leadership:
    """Of several `relkit run` of one job on this node, the one that holds a file lock monitors.

    The kernel releases the lock when that process ends, and another one takes over.

    Args:
        folder: the job's folder; None where there is none, then nobody leads.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._handle: int | None = None

    def take(self) -> bool:
        """True when this process leads, now or since earlier."""
        if self._handle is not None or self._folder is None:
            return self._handle is not None
        handle = open_private(self._folder / "leader.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def drop(self) -> None:
        """Give it up."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class DeathTracker:
    """Notes when each rank's process disappeared: it is another launcher's child, so that its exit
    code cannot be read.

    Args:
        observer: finds the ranks.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._seen: dict[int, tuple[int, float]] = {}
        self._exit_statuses: dict[int, ExitStatus] = {}
        self._next_discovery_s = 0.0

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that were ever seen."""
        return tuple(sorted({*self._seen, *self._exit_statuses}))

    def exit_statuses(self) -> Mapping[int, ExitStatus]:
        """How the ranks ended, as far as that is known."""
        return self._exit_statuses

    def look(self, returncode: int | None = None) -> None:
        """See which ranks are still alive.

        Args:
            returncode: of the command, once it has ended; where there was only one rank, it counts
                as that rank's.
        """
        now_s = time.monotonic()
        if now_s >= self._next_discovery_s or returncode is not None:
            self._next_discovery_s = now_s + DISCOVER_S
            for rank in self._observer.discover():
                known = self._seen.get(rank.rank)
                if known is None or known[0] != rank.pid:
                    self._seen[rank.rank] = (rank.pid, time.time())
                    self._exit_statuses.pop(rank.rank, None)
        code = returncode if len(self._seen) == 1 else None
        for number, (pid, alive_unix_s) in self._seen.items():
            if procfs.is_same_process(pid, 0):
                self._seen[number] = (pid, time.time())
            elif number not in self._exit_statuses or returncode is not None:
                self._exit_statuses[number] = ExitStatus(code, alive_unix_s)


class _Forwarder:
    """Forwards signals to the command; those that come before it runs, as soon as it does.

    Attributes:
        asked_to_end: one of them asks a program to end.
    """

    def __init__(self) -> None:
        self.asked_to_end = False
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def to(self, child: subprocess.Popen[bytes]) -> None:
        """The command runs."""
        self._child = child
        for number in self._early:
            child.send_signal(number)

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.asked_to_end |= number in _ENDING
        if self._child is None:
            self._early.append(number)
            return
        if number == signal.SIGINT and _terminal_is_ours():
            # The terminal has sent Ctrl-C to the whole foreground group, the child included.
            return
        if self._child.poll() is None:
            self._child.send_signal(number)


@contextmanager
def _forwarded_signals() -> Iterator[_Forwarder]:
    forward = _Forwarder()
    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield forward
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminal_is_ours() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def end_tree(child: subprocess.Popen[bytes], also: Sequence[int] = ()) -> None:
    """End a child with all its descendants: SIGTERM, a grace period, SIGKILL.

    Args:
        also: further processes that belong to the job.
    """
    roots = (child.pid, *also)
    family = [pid for root in roots for pid in (root, *procfs.descendants(root))]
    # Start times, so that a pid that was reused meanwhile is left alone.
    alive = {pid: ticks for pid in family if (ticks := procfs.start_ticks(pid))}
    for number in (signal.SIGTERM, signal.SIGCONT):
        # SIGCONT second: a stopped process acts on SIGTERM only once it continues.
        _send(alive, number)
    if not _wait_gone(child, alive, GRACE_S):
        _send(alive, signal.SIGKILL)
        _wait_gone(child, alive, GRACE_S)


def _send(processes: Mapping[int, int], number: signal.Signals) -> None:
    for pid, ticks in processes.items():
        if procfs.is_same_process(pid, ticks):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _wait_gone(
    child: subprocess.Popen[bytes], processes: Mapping[int, int], timeout_s: float
) -> bool:
    end = time.monotonic() + timeout_s
    while True:
        child.poll()
        if not any(procfs.is_same_process(pid, ticks) for pid, ticks in processes.items()):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(POLL_S / 2)


def start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the command.

    Raises:
        UsageProblem: there is no such program, or it cannot be executed.
    """
    try:
        return subprocess.Popen(list(command), env=dict(environ))
    except OSError as error:
        raise UsageProblem(
            f"cannot start {command[0]!r}: {error.strerror}",
            next_step="Write the command after --, as in: relkit run -- mpirun -n 4 ./train",
        ) from error


def exit_code_of(returncode: int) -> int:
    """A child's return code as a shell shows it: 128 + n for signal n."""
    return returncode if returncode >= 0 else 128 - returncode


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    job_id: str,
    job_dir: Path | None,
    monitor: Monitor,
    on_hang: OnHang,
    log: Log,
    several_nodes: bool = False,
) -> int:
    """Run a command to its end, with its ranks watched.

    Args:
        command: argv of the program.
        environ: its whole environment.
        job_dir: folder of the recorder files, None without the hook.
        several_nodes: the job has ranks on other nodes, which `relkit run` watches there.

    Returns:
        the command's exit code; 1 where it hung and was ended.

    Raises:
        UsageProblem: the command cannot be started.
    """
    observer = Observer(job_dir, removes_ended=True)
    leadership = Leadership(job_dir)
    deaths = DeathTracker(observer)
    watched = WatchedRanks(
        Attempt(job_id, world_size=0),
        observer=observer,
        mailbox=MemoryMailbox(),
        ranks=observer.discover,
        exit_statuses=deaths.exit_statuses,
        deaths=HostDeaths(dict),
        sees_all=not several_nodes,
    )
    looks = Looks(log)
    child: subprocess.Popen[bytes] | None = None
    watching = False
    try:
        with _forwarded_signals() as forward:
            child = start(command, environ)
            forward.to(child)
            while child.poll() is None:
                if not watching and looks.take("looking for the job", leadership.take, False):
                    watching = True
                    looks.take("watching the job", partial(monitor.begin, watched), None)
                if watching:
                    looks.take("looking at the ranks", deaths.look, None)
                if monitor.action() is not None:
                    log("the job hangs and is ended (--on-hang abort)")
                    end_tree(child, observer.living())
                    return EXIT_PROBLEM
                time.sleep(POLL_S)
            # Ranks that end because somebody asked for it have not failed.
            failed = child.returncode != 0 and not forward.asked_to_end
            if failed and watching and deaths.ranks:
                code = exit_code_of(child.returncode)
                looks.take("looking at the ranks", partial(deaths.look, child.returncode), None)
                why = f"the command ended with exit code {code}"
                looks.take("explaining the end", partial(monitor.failed, why), None)
    finally:
        if child is not None and child.poll() is None:
            end_tree(child)
        looks.take("the end of the watch", monitor.close, None)
        looks.take("the end of the watch", leadership.drop, None)
    return exit_code_of(child.returncode)
