"""The agent of a job, whose workers go on where nobody can look at them."""

from __future__ import annotations

from functools import partial

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from relkit.launch.accounted_agent import AccountedAgent


class GuardedAgent(AccountedAgent):
    """Where a round of looks fails, as without a free descriptor, torch's own look is taken.

    The next round has all of them again.
    """

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        watch = partial(super()._monitor_workers, worker_group)
        result = self.looks.take("watching the workers", watch, None)
        return self._plain_look(worker_group) if result is None else result

    def _plain_look(self, worker_group: WorkerGroup) -> RunResult:
        # Nothing has been seen that torch's look could wait for.
        self.looks.is_blind = True
        try:
            result: RunResult = LocalElasticAgent._monitor_workers(self, worker_group)
            return result
        finally:
            self.looks.is_blind = False
