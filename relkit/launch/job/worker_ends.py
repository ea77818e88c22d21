"""When workers have ended, and whether somebody is asking all of them to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relkit.hang.deaths import ASKED_TO_END
from relkit.launch.job.exit_status import peek_exit
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.post_mortem.collector import WorkerFiles
from relkit.process import procfs

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import Worker
    from torch.distributed.elastic.multiprocessing import PContext
    from torch.distributed.elastic.multiprocessing.api import RunProcsResult

# Whoever ends a whole job signals one process after the other.
SETTLE_S = 0.5
# A process that has been asked to end may need this long to do so on a busy host.
MAX_SETTLE_S = 5.0
_SETTLE_POLL_S = 0.02
_REAPED = 1 << 20  # no exit code


def settle(
    pids: Mapping[int, int],
    statuses: Callable[[], Mapping[int, ExitStatus]],
    look: Callable[[], object],
    timeout_s: float = SETTLE_S,
    max_s: float = MAX_SETTLE_S,
) -> None:
    """Wait a moment where all ranks that have failed were asked to end: the others may be, too.

    Args:
        pids: of all ranks of this node.
        statuses: of the ranks that have ended; look: polls all of them.
        timeout_s: how long to wait for others to be asked, s.
        max_s: how long to wait for those that have been asked to end, s.
    """
    begin_s = time.monotonic()
    while (waited_s := time.monotonic() - begin_s) < max_s:
        ends = statuses()
        codes = [end.exit_code for end in ends.values() if end.exit_code]
        if not codes or any(code not in ASKED_TO_END for code in codes):
            return
        others = [pid for rank, pid in pids.items() if rank not in ends]
        if not others:
            return
        if waited_s >= timeout_s and not any(map(procfs.is_ending, others)):
            return
        time.sleep(_SETTLE_POLL_S)
        look()


def look_first(
    context: PContext | None,
    statuses: Callable[[], Mapping[int, ExitStatus]],
    is_blind: Callable[[], bool] = lambda: False,
) -> None:
    """Let torch look at its workers only after the launcher has seen that they fail, or are done.

    Where one has failed, torch ends the others in the same look: if the launcher has not captured
    them by then, nobody can tell any more what they did, nor who ended them. While torch must not
    look, `context.wait` returns None at once.

    Args:
        context: of these workers; statuses: of those of which the launcher has seen the end.
        is_blind: the launcher cannot look now, and torch is not to wait for it.
    """
    if context is None:
        return
    wait = context.wait

    def wait_once_seen(*args: Any, **named: Any) -> RunProcsResult | None:  # noqa: ANN401
        ends = statuses()
        seen_failure = any(end.exit_code for end in ends.values())
        if not is_blind() and not seen_failure and _is_too_early(context, len(ends)):
            return None
        return wait(*args, **named)

    context.wait = wait_once_seen  # type: ignore[method-assign]


def _is_too_early(context: PContext, ends: int) -> bool:
    """A worker may have failed, and the launcher has not seen it.

    Args:
        ends: number of workers of which the launcher has seen the end.
    """
    exits = [peek_exit(pid, _REAPED) for pid in context.pids().values()]
    # Of what somebody else has reaped only torch may know the exit code.
    if _REAPED in exits:
        return False
    if hasattr(context, "subprocess_handlers"):
        return ends < context.nprocs
    # Functions (--run-path) wait, once they have returned, until torch has looked at them.
    return any(exits)


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


def wake_stopped(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal workers that are stopped: they would ignore it until torch's timeout (30 s) is over.

    Raises:
        OSError: there is no descriptor left to look at one.
    """
    for pid in pids:
        if procfs.process_state(pid).startswith("T"):
            signal_group(pid, number)
            signal_group(pid, signal.SIGCONT)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a worker and what it has started; nothing where it is gone."""
    try:
        # torch starts workers in sessions of their own, so that the group is the worker's.
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return
