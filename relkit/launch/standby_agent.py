"""The monitored agent, with warm standbys in its workers' places."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState

from relkit.launch.agent import MonitoredAgent
from relkit.launch.warm_standby.standbys import Standbys
from relkit.launch.warm_standby.worker_start import standbys_first

# Where nothing shows that the job trains, it is taken to after this long.
_STARTED_S = 60.0


class StandbyAgent(MonitoredAgent):
    """Starts workers from standbys, and makes new ones once the job trains."""

    # The launcher sets its own.
    standbys = Standbys(False, lambda _line: None)
    _started_s = 0.0
    _notes_folder: Path | None = None

    @property
    def is_training(self) -> bool:
        """The workers have been seen to work."""
        return False

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        with standbys_first(self.standbys):
            pids = super()._start_workers(worker_group)
        self._started_s = time.monotonic()
        if self._notes_folder is not None:
            self.standbys.watch(self._notes_folder, pids)
        return pids

    def _more_environment(self, job_dir: Path | None) -> dict[str, str]:
        sockets = self.services.sockets
        # Both are private to this user, and gone with the job.
        self._notes_folder = job_dir or (sockets.path if sockets else None)
        if self._notes_folder is None or not self.standbys.is_wanted:
            return {}
        return {"RELKIT_IMPORTS_DIR": str(self._notes_folder)}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result = super()._monitor_workers(worker_group)
        if self.standbys.is_wanted and result.state is WorkerState.HEALTHY:
            is_up = self.is_training or time.monotonic() - self._started_s > _STARTED_S
            may_start = is_up and self._remaining_restarts > 0
            look = partial(self.standbys.look, may_start=may_start)
            killed = self.looks.take("warm standby", look, 0)
            if killed and self._deaths is not None:
                self._deaths.discount_kills(killed)
        return result

    def _failed(self, sentence: str) -> None:
        if self._remaining_restarts > 0:
            # While the others are captured and stopped.
            self.looks.take("warm standby", self.standbys.hurry, None)
        super()._failed(sentence)

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        self.looks.take("warm standby", self.standbys.hurry, None)
        super()._restart_workers(worker_group)

    def _exit_barrier(self) -> None:
        # The workers of this node are done, and other nodes may take their time.
        self.standbys.close()
        super()._exit_barrier()
