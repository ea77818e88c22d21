"""What an agent needs to see ranks that the hook does not: their environment, and the observer."""

from __future__ import annotations

import os
from pathlib import Path

from relkit.bootstrap import bootstrap_environment
from relkit.launch.hang.monitor import Monitor
from relkit.launch.hang.nccl_ras_source import NcclRas
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.state_source import StateSource
from relkit.launch.hang.worker_servers import EVERY_S, WorkerServers
from relkit.launch.job.socket_folder import SocketFolder
from relkit.process.identity import own_identity


def seen_environment(sockets: SocketFolder | None, *, is_timed: bool) -> dict[str, str]:
    """What workers need in their environment to be seen beyond the hook.

    Args:
        sockets: see live_observer.
        is_timed: pauses of the worker's own are marked in the recorder of the hook; such a worker
            ends with this process.
    """
    extra = {} if sockets is None else sockets.begin()
    if is_timed:
        extra["RELKIT_LAUNCHER"] = own_identity().to_text()
    return {**bootstrap_environment(os.environ), **extra} if is_timed or extra else {}


def live_observer(
    job_dir: Path | None, sockets: SocketFolder | None, monitor: Monitor, world_size: int
) -> Observer:
    """Looks at the recorders of this node's ranks, at the sockets, and asks NCCL's RAS.

    Args:
        job_dir: see Observer; sockets: None where no worker has one.
        monitor: the one that looks; in its timeout there are some looks at the sockets.
        world_size: ranks of the job.
    """
    folder = None if sockets is None else sockets.path
    sources: list[StateSource] = []
    if folder is not None:
        every_s = min(EVERY_S, monitor.hang_timeout_s / 4)
        sources.append(WorkerServers(folder, world_size, every_s=every_s))
    if os.environ.get("NCCL_RAS_ENABLE", "1") != "0":
        sources.append(NcclRas(world_size))
    return Observer(job_dir, removes_ended=True, sources=sources, log=monitor.log)
