"""The launcher of a host on which ranks end between the launcher's look at them and torch's.

python late_look.py ARGUMENTS: as `relkit ARGUMENTS`; it says once when it has looked.
"""

from __future__ import annotations

import os
import select
import sys

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from relkit.cli import main

torch_looks = LocalElasticAgent._monitor_workers
waited_for: set[int] = set()


def look_late(agent: LocalElasticAgent, group: WorkerGroup) -> RunResult:
    """Torch's look, once one of these workers has ended."""
    pids = {int(worker.id) for worker in group.workers}
    if not waited_for & pids:
        waited_for.update(pids)
        print("the launcher has looked", file=sys.stderr, flush=True)
        select.select([os.pidfd_open(pid) for pid in pids], [], [])
    result: RunResult = torch_looks(agent, group)
    return result


LocalElasticAgent._monitor_workers = look_late  # type: ignore[method-assign]
main()
