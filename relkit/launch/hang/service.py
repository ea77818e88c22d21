"""The watch for hangs, and the capture of what fails, as services of a job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from relkit.bootstrap import bootstrap_environment
from relkit.launch.hang.attempt import WatchedRanks
from relkit.launch.hang.monitor import Monitor
from relkit.launch.hang.nccl_ras_source import NcclRas
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.state_source import StateSource
from relkit.launch.hang.worker_servers import EVERY_S, WorkerServers
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.service import Action, End, Job, Restart, Service, Stop
from relkit.launch.job.settings import JobAborted, Log
from relkit.launch.job.socket_folder import SocketFolder
from relkit.post_mortem.collector import HostDeaths
from relkit.process.identity import own_identity
from relkit.ranks import RankSet

# A worker of a hung job that has not ended this long after SIGTERM is not going to.
HUNG_SHUTDOWN_S = 5


class SeenWorkers(Service):
    """Has workers be seen beyond the hook: by their sockets, and by marks in its recorder.

    Args:
        sockets: of workers that answer where the hook sees nothing.
    """

    def __init__(self, sockets: SocketFolder) -> None:
        self._sockets = sockets

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        extra = self._sockets.begin()
        if attempt.job_dir is not None:
            # Pauses of the worker's own are marked; such a worker ends with this process.
            extra["RELKIT_LAUNCHER"] = own_identity().to_text()
        return {**bootstrap_environment(os.environ), **extra} if extra else {}


class HangService(Service):
    """Watches the workers of all attempts, and says what is to be done about a hang.

    Args:
        monitor: watches.
        sockets: see SeenWorkers.
        expected: why workers here may lose a peer now, "" for no reason: such a failure is not
            captured.
        log: writes one line to the terminal.
    """

    def __init__(
        self, monitor: Monitor, sockets: SocketFolder, expected: Callable[[], str], log: Log
    ) -> None:
        self._monitor, self._sockets, self._expected = monitor, sockets, expected
        self._log = log
        self._job: Job | None = None
        self._observer = Observer(None)
        self._deaths: HostDeaths | None = None
        self._has_hung = self._is_told = False

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self._job = job

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        self._has_hung = self._is_told = False
        self._observer = self._observer_of(attempt.job_dir, attempt.world_size)
        self._deaths = HostDeaths(attempt.workers.files, notes=self._sockets.path)
        return {}

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        ranks, deaths = attempt.ranks, self._deaths
        assert deaths is not None
        deaths.look(each.pid for each in ranks)
        self._log(
            f"job {attempt.job_id}: watching rank {RankSet.of(r.rank for r in ranks).fold()}"
            f" of {attempt.world_size} on {socket.gethostname()}"
        )
        self._monitor.begin(
            WatchedRanks(
                attempt,
                observer=self._observer,
                mailbox=attempt.channels.led,
                ranks=lambda: ranks,
                exit_statuses=partial(attempt.workers.latest, ranks),
                deaths=deaths,
            )
        )

    def recorder_of(self, rank: int) -> Path | None:
        """Find the recorder file of a rank of this node, as the watch has last seen it."""
        return self._observer.file_of(rank)

    def discount_kills(self, count: int) -> None:
        """Processes that are no workers were ended as the kernel's OOM killer does it."""
        if self._deaths is not None:
            self._deaths.discount_kills(count)

    def worker_failed(self, attempt: Attempt, failure: str) -> None:
        """See Service."""
        if why := self._expected():
            self._log(f"{failure}; that was expected: {why}")
            return
        assert self._job is not None
        self._job.looks.take("the capture", partial(self._monitor.failed, failure), None)

    def poll(self, attempt: Attempt) -> Action | None:
        """See Service."""
        assert self._job is not None
        if self._monitor.hung and not self._is_told:
            self._is_told = True
            self._job.breaks_off("the job hangs")
        action = self._monitor.action()
        # SAVE: not under try-to-persist, and there is nothing else that could save it.
        if action is None or action is OnHang.SAVE:
            return None
        if action is OnHang.RESTART and self._job.restarts_left > 0:
            return Restart("restarting the workers")
        left = "; no restart is left" if action is OnHang.RESTART else ""
        return End(JobAborted(f"the job hung and was ended (--on-hang {action}{left})"))

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        """See Service."""
        self._has_hung = self._has_hung or self._monitor.hung
        self._monitor.pause()
        return HUNG_SHUTDOWN_S if self._has_hung else None

    def close(self) -> None:
        """See Service."""
        self._monitor.close()

    def _observer_of(self, job_dir: Path | None, world_size: int) -> Observer:
        """Looks at the recorders of this node's ranks, at the sockets, and asks NCCL's RAS."""
        monitor, folder = self._monitor, self._sockets.path
        sources: list[StateSource] = []
        if folder is not None:
            # In the monitor's timeout there are some looks at the sockets.
            every_s = min(EVERY_S, monitor.hang_timeout_s / 4)
            sources.append(WorkerServers(folder, world_size, every_s=every_s))
        if os.environ.get("NCCL_RAS_ENABLE", "1") != "0":
            sources.append(NcclRas(world_size))
        return Observer(job_dir, removes_ended=True, sources=sources, log=monitor.log)
