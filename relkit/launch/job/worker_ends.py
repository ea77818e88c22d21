"""Which workers ended by themselves, and which because somebody asked them to."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.hang.deaths import ASKED_TO_END, BY_LAUNCHER
from relkit.launch.job.exit_status import peek_exit
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.post_mortem.collector import WorkerFiles

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import Worker
    from torch.distributed.elastic.multiprocessing import PContext

# Whoever ends a whole job signals one process after the other.
SETTLE_S = 0.5
_SETTLE_POLL_S = 0.02


def settle(
    statuses: Callable[[], Mapping[int, ExitStatus]],
    look: Callable[[], object],
    timeout_s: float = SETTLE_S,
) -> None:
    """Wait a moment where all ranks that have failed were asked to end: the others may be, too.

    Args:
        statuses: of the ranks that have ended; look: polls all of them.
        timeout_s: how long, s.
    """
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        codes = [end.exit_code for end in statuses().values() if end.exit_code]
        if not codes or any(code not in ASKED_TO_END for code in codes):
            return
        time.sleep(_SETTLE_POLL_S)
        look()


def first_failure(statuses: Mapping[int, ExitStatus]) -> int:
    """The rank that failed first.

    Args:
        statuses: by rank, in torch's order: those that it saw before it closed the others come
            first. What it may have ended itself counts only where there is nothing else.
    """
    own = [rank for rank, end in statuses.items() if end.exit_code not in BY_LAUNCHER]
    killed = [rank for rank, end in statuses.items() if end.exit_code == -signal.SIGKILL]
    return next(iter(own or killed or statuses))


def with_doing(statuses: Mapping[int, ExitStatus], first: int) -> Mapping[int, ExitStatus]:
    """The same, with those marked that torch has ended because of the first.

    Args:
        statuses: by rank, of a look of torch's, after which it closed the rest; first: see above.
    """
    return {
        rank: replace(end, by_launcher=rank != first and end.exit_code == -signal.SIGTERM)
        for rank, end in statuses.items()
    }


def ends_now(
    statuses: Mapping[int, ExitStatus],
    ranks: Iterable[LocalRank],
    status_of: Callable[[int, int], ExitStatus],
) -> Mapping[int, ExitStatus]:
    """The same, with the ranks that have ended since the launcher polled them.

    Args:
        statuses: by rank, of the last poll; ranks: children of this process.
        status_of: of a rank and its exit code.
    """
    codes = {each.rank: peek_exit(each.pid, None) for each in ranks if each.rank not in statuses}
    since = {rank: status_of(rank, code) for rank, code in codes.items() if code is not None}
    return {**statuses, **since}


def worker_files(context: PContext | None, workers: Sequence[Worker]) -> Mapping[int, WorkerFiles]:
    """What torch keeps of each of its workers, by rank; nothing before they are started."""
    if context is None:
        return {}
    return {
        worker.global_rank: WorkerFiles(
            _path(context.stderrs.get(worker.local_rank)),
            _path(context.error_files.get(worker.local_rank)),
        )
        for worker in workers
    }


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None
