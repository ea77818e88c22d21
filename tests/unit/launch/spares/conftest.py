"""Jobs of threads, which end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

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
        # By somebody else: nodes may be in a rendezvous, in their threads. On a busy machine torch
        # may give up, and says so in what it returns.
        end = Node(job.server.port, "end", SpareSettings(), (1, 1))
        eventually(end.handler.shutdown, "the rendezvous is closed", 100.0)
        job.pool.shutdown(wait=True)
        for node in job.all:
            node.handler._stop_heartbeats()
