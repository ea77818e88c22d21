"""Jobs of threads, which end with the test."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
from torch.distributed.elastic.rendezvous import RendezvousError

from relkit.launch.spares.settings import SpareSettings
from tests.unit.launch.spares.job_of_threads import LAST_CALL, Job, Node
from tests.waiting import eventually


@pytest.fixture
def a_job() -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def make(
        nodes: tuple[int, int] = (2, 2), replacement_timeout_s: float | None = None, unit: int = 1
    ) -> Job:
        settings = SpareSettings(1, replacement_timeout_s, node_unit=unit, is_on=True)
        made.append(Job(settings, nodes, LAST_CALL / 10 if unit > 1 else LAST_CALL))
        return made[-1]

    yield make
    for job in made:
        # Their heartbeats write the same state as who closes it, who on a busy machine may lose.
        for node in job.all:
            node.handler._stop_heartbeats()
        # By somebody else: nodes may be in a rendezvous, in their threads.
        end = Node(job.server.port, "end", SpareSettings(), (1, 1))
        refused: list[str] = []

        def is_closed(end: Node = end, refused: list[str] = refused) -> bool:
            try:
                end.handler._close()
            except RendezvousError as error:
                refused.append(repr(error))
                return False
            return True

        eventually(is_closed, functools.partial(" ".join, refused), 100.0)
        job.pool.shutdown(wait=True)
        for node in job.all:
            node.handler._stop_heartbeats()  # of meetings that have come about since
