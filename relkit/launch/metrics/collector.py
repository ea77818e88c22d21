"""Puts the samples of one moment together: of the launcher, the job, and this node's ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from relkit import __version__
from relkit.accounting.worker_notes import read_rate
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.metrics.recorders import Recorders
from relkit.launch.metrics.sources import Checkpoint, Sources
from relkit.metrics import job_samples, table
from relkit.metrics.model import Sample
from relkit.metrics.rank_samples import of_ranks

# A disk that does not answer keeps only its own numbers back.
_DISK_S = 2.0


class Collector:
    """Call collect() as often as numbers are wanted, always in one thread.

    Args:
        sources: what other services know.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._disk = BoundedCalls("relkit-metrics-disk")
        self._attempt: Attempt | None = None
        self._recorders: Recorders | None = None
        self._cpu_s = 0.0

    def watch(self, attempt: Attempt | None) -> None:
        """Workers have been started; None: they are stopped."""
        if attempt is self._attempt:
            return
        if self._recorders is not None:
            self._recorders.close()
        self._attempt, self._recorders = attempt, None
        if attempt is not None and attempt.job_dir is not None:
            self._recorders = Recorders(attempt.ranks, self._sources.recorder_of)

    def collect(self) -> list[Sample]:
        """All that is known now; what is not is left out."""
        begin_s = time.thread_time()
        samples = list(self._all())
        self._cpu_s += time.thread_time() - begin_s
        return [*samples, table.EXPORTER_CPU.of(self._cpu_s), table.MADE_AT.of(time.time())]

    def _all(self) -> Iterator[Sample]:
        sources = self._sources
        yield table.INFO.of(1, __version__)
        # First: of two samples that say the same, the first one counts.
        yield from self._of_attempt()
        incidents, is_hung = sources.told.so_far(), sources.is_hung()
        if is_hung is not None:
            yield from job_samples.of_hang(is_hung, incidents)
        yield from job_samples.of_incidents(incidents)
        yield from job_samples.of_accounts(sources.records())
        standing = sources.standing()
        if standing is not None:
            yield from job_samples.of_stragglers(standing, time.time())
        if sources.told.network_check is not None:
            yield from job_samples.of_network_check(sources.told.network_check)
        for saved in self._checkpoints():
            age_s = time.time() - saved.saved_unix_s
            yield from job_samples.of_checkpoint(saved.tier, saved.step, age_s)

    def _of_attempt(self) -> Iterator[Sample]:
        attempt = self._attempt
        if attempt is None:
            return
        yield table.WORLD_SIZE.of(attempt.world_size)
        yield table.NODES.of(attempt.nodes)
        if self._recorders is None or attempt.job_dir is None:
            return
        looks, counts = self._recorders.looks()
        for state, count in counts.items():
            yield table.LOCAL_RANKS.of(count, state)
        yield from of_ranks(looks)
        rates = (read_rate(attempt.job_dir, rank.rank) for rank in attempt.ranks)
        rate = next((each for each in rates if each is not None), None)
        if rate is not None:
            yield table.TOKENS_PER_SECOND.of(rate.tokens_per_s)
            if rate.mfu is not None:
                yield table.MFU.of(rate.mfu)

    def _checkpoints(self) -> Sequence[Checkpoint]:
        with suppress(NoAnswer):
            return self._disk.call(self._sources.checkpoints, timeout_s=_DISK_S)
        return ()
