"""How this node's workers end: polled by the launcher, which sees it before torch does."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.launch.job.exit_status import exit_status, how_rank_ended, peek_exit
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.launch.job.worker_ends import ends_now, settle
from relkit.post_mortem.collector import WorkerFiles

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import Worker
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure


class WorkerExits:
    """Of one launcher; see Workers.

    Args:
        files: what torch keeps of each worker, by rank.
        on_end: told the rank of each worker that has ended, and how, in a sentence.
    """

    def __init__(
        self,
        files: Callable[[], Mapping[int, WorkerFiles]],
        on_end: Callable[[int, str], None],
    ) -> None:
        self.files, self._on_end = files, on_end
        self.seen: Mapping[int, ExitStatus] = {}
        self._seen_alive_unix_s: dict[int, float] = {}

    def begin(self) -> None:
        """Other workers are about to be started."""
        self.seen, self._seen_alive_unix_s = {}, {}

    def poll(self, workers: Iterable[Worker]) -> str:
        """Note which workers have ended; a sentence where one of them has just failed."""
        seen, now_unix_s, sentence = dict(self.seen), time.time(), ""
        for worker in workers:
            rank = worker.global_rank
            # torch sets the ids once all workers have been started; a signal may come before.
            if rank in seen or worker.id is None:
                continue
            pid = int(worker.id)
            exit_code = peek_exit(pid)
            if exit_code is None:
                self._seen_alive_unix_s[rank] = now_unix_s
                continue
            seen[rank] = self._status(rank, exit_code)
            how = how_rank_ended(rank, pid, exit_code)
            if exit_code:
                sentence = sentence or how
            self._on_end(rank, how)
        self.seen = seen
        return sentence

    def settle(self, workers: Sequence[Worker]) -> None:
        """Wait a moment where all that have failed were asked to end, see settle()."""
        pids = {worker.global_rank: int(worker.id) for worker in workers}
        settle(pids, lambda: self.seen, lambda: self.poll(workers))

    def take(self, failures: Mapping[int, ProcessFailure]) -> str:
        """torch has seen a failure before the launcher: a sentence on the one that came first."""
        ends = {rank: self._status(rank, each.exitcode) for rank, each in failures.items()}
        self.seen = {**self.seen, **ends}
        # The others have been ended by torch.
        first = min(failures, key=lambda rank: failures[rank].exitcode == -signal.SIGTERM)
        return how_rank_ended(first, failures[first].pid, failures[first].exitcode)

    def latest(self, ranks: Iterable[LocalRank]) -> Mapping[int, ExitStatus]:
        """See Workers."""
        return ends_now(self.seen, ranks, self._status)

    def _status(self, rank: int, exit_code: int) -> ExitStatus:
        error_file = self.files().get(rank, WorkerFiles()).errors or Path()
        seen_alive_unix_s = self._seen_alive_unix_s.get(rank, time.time())
        return exit_status(exit_code, error_file, seen_alive_unix_s)
