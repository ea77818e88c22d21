"""Warm standbys as a service of a job: processes that take over as workers at a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Action, Job, Service, Stop, WorkerState
from relkit.launch.job.socket_folder import SocketFolder
from relkit.launch.warm_standby.standbys import Standbys
from relkit.launch.warm_standby.worker_start import standbys_first

# Where nothing shows that the job trains, it is taken to after this long.
_STARTED_S = 60.0


class StandbyService(Service):
    """Starts workers from standbys, and makes new ones once the job trains.

    Args:
        standbys: of this launcher.
        sockets: whose folder is used where there is none of recorders.
        is_training: the workers have been seen to work.
        on_killed: told how many standbys were killed as the kernel's OOM killer does it.
    """

    def __init__(
        self,
        standbys: Standbys,
        sockets: SocketFolder,
        is_training: Callable[[], bool],
        on_killed: Callable[[int], None],
    ) -> None:
        self._standbys, self._sockets = standbys, sockets
        self._is_training, self._on_killed = is_training, on_killed
        self._job: Job | None = None
        self._started_s = 0.0
        self._notes_folder: Path | None = None
        self._starting = ExitStack()

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self._job = job

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        self._starting.close()
        self._starting.enter_context(standbys_first(self._standbys))
        # Both are private to this user, and gone with the job.
        self._notes_folder = attempt.job_dir or self._sockets.path
        if self._notes_folder is None or not self._standbys.is_wanted:
            return {}
        return {"RELKIT_IMPORTS_DIR": str(self._notes_folder)}

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        self._starting.close()
        self._started_s = time.monotonic()
        if self._notes_folder is not None:
            pids = {local_rank: each.pid for local_rank, each in enumerate(attempt.ranks)}
            self._standbys.watch(self._notes_folder, pids)

    def worker_failed(self, attempt: Attempt, failure: str) -> None:
        """See Service."""
        assert self._job is not None
        if self._job.restarts_left > 0:
            # While the others are captured and stopped.
            self._hurry(self._job)

    def looked(self, attempt: Attempt, state: WorkerState) -> Action | None:
        """See Service."""
        assert self._job is not None
        if state is WorkerState.SUCCEEDED:
            # The workers of this node are done, and other nodes may take their time.
            self._standbys.close()
        if self._standbys.is_wanted and state is WorkerState.HEALTHY:
            is_up = self._is_training() or time.monotonic() - self._started_s > _STARTED_S
            look = partial(self._standbys.look, may_start=is_up and self._job.restarts_left > 0)
            if killed := self._job.looks.take("warm standby", look, 0):
                self._on_killed(killed)
        return None

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        """See Service."""
        if stop is not Stop.END and self._job is not None:
            self._hurry(self._job)
        return None

    def close(self) -> None:
        """See Service."""
        self._starting.close()
        self._standbys.close()

    def _hurry(self, job: Job) -> None:
        job.looks.take("warm standby", self._standbys.hurry, None)
