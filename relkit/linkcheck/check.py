"""Measure all pairs, then the pairings that tell the ends of the bad ones apart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from relkit.errors import UsageProblem
from relkit.linkcheck.judge import judge_links, second_pairing
from relkit.linkcheck.model import Checked, Failure, Inventory, Measurement, Pair
from relkit.linkcheck.pairs import shared_sockets
from relkit.linkcheck.provider import LinkProvider
from relkit.linkcheck.tool import stopping
from relkit.process.interruptible_wait import result_of

Progress = Callable[[int, int, str], None]
Direction = tuple[int, int]


def check_links(
    provider: LinkProvider,
    inventory: Inventory,
    pairs: Sequence[Pair],
    *,
    min_bandwidth_mb_s: float,
    timeout_s: float = 0.0,
    is_concurrent: bool = False,
    progress: Progress = lambda _done, _total, _what: None,
) -> Checked:
    """Measure.

    Args:
        provider: who measures; inventory: what its look() found.
        pairs: what to test.
        min_bandwidth_mb_s: which links need a second pairing.
        timeout_s: limit of one measurement, s; the provider's own where 0.
        is_concurrent: all pairs at one time (one direction after the other). Links that share a
            path then slow each other; the second pairing stays sequential.
        progress: told (done, total, what comes next) before each step, and once at the end.

    Raises:
        UsageProblem: pairs that share a socket are to be measured at one time.
    """
    wanted = tuple(pairs)
    shared = shared_sockets(wanted)
    if is_concurrent and shared:
        raise UsageProblem(
            f"socket {shared[0]} is in several pairs, which cannot be measured at one time",
            next_step="Leave --concurrent out.",
        )
    limit_s = timeout_s or provider.timeout_s
    run = _Run(provider, inventory, limit_s, progress)
    first: list[Measurement] = []
    if is_concurrent:
        run.total = 2
        for way in (0, 1):
            first += run.all_at_once([pair.directions[way] for pair in wanted])
    else:
        run.total = 2 * len(wanted)
        first += run.one_by_one([ends for pair in wanted for ends in pair.directions])
    links = judge_links(wanted, first, min_bandwidth_mb_s)
    second = second_pairing(links, inventory.gpu_of)
    run.total += 2 * len(second)
    crosses = run.one_by_one([ends for pair in second for ends in pair.directions])
    counters = provider.counters(limit_s)
    progress(run.total, run.total, "done")
    return Checked(
        provider.name, inventory, wanted, tuple(first), tuple(crosses), counters, is_concurrent
    )


class _Run:
    """Counts the steps, and answers for sockets that nothing can be measured at."""

    def __init__(
        self, provider: LinkProvider, inventory: Inventory, timeout_s: float, progress: Progress
    ) -> None:
        self._provider = provider
        self._inventory = inventory
        self._timeout_s = timeout_s
        self._progress = progress
        self._done = 0
        self.total = 0

    def one_by_one(self, directions: Sequence[Direction]) -> list[Measurement]:
        """Each direction alone."""
        measurements = []
        for ends in directions:
            self._step(f"{ends[0]} -> {ends[1]}")
            measurements.append(self._measure(ends))
            self._done += 1
        return measurements

    def all_at_once(self, directions: Sequence[Direction]) -> list[Measurement]:
        """All directions at one time, as one step."""
        self._step(f"{len(directions)} links at one time")
        stop = threading.Event()
        token = stopping.set(stop)
        try:
            with ThreadPoolExecutor(max_workers=len(directions)) as threads:
                try:
                    futures = [
                        threads.submit(copy_context().run, self._measure, ends)
                        for ends in directions
                    ]
                    measurements = [result_of(future) for future in futures]
                finally:
                    # Where Ctrl-C came, leaving the pool would wait for all tools' deadlines.
                    stop.set()
        finally:
            stopping.reset(token)
        self._done += 1
        return measurements

    def _step(self, what: str) -> None:
        self._progress(self._done, self.total, what)

    def _measure(self, ends: Direction) -> Measurement:
        for socket in ends:
            claims = self._inventory.claims.get(socket)
            if claims:
                detail = f"socket {socket}: GPUs {', '.join(map(str, claims))}"
                return Measurement(*ends, failure=Failure.AMBIGUOUS, detail=detail)
            if socket not in self._inventory.gpu_of:
                return Measurement(*ends, failure=Failure.NO_GPU, detail=f"socket {socket}")
        return self._provider.measure(*ends, self._timeout_s)
