"""The node whose launcher has the rendezvous store: it cannot be lost before the store is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.patience import PATIENCE
from tests.unit.launch.spares.job_of_threads import LIMIT_S, Job
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(90 * PATIENCE)


def test_the_host_of_the_store_lives_as_long_as_the_store_answers(
    a_job: Callable[..., Job],
) -> None:
    """On a busy machine its launcher may wait for a processor for longer than others may."""
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spare, _ = job.spare("c")
    one.handler._stop_heartbeats()

    def silent_s() -> float:
        assert not two.waits_to_meet_again(), str(spare.log)
        beats = two.handler._state_holder.state.last_heartbeats
        silence = beats[two.handler._this_node] - beats[one.handler._this_node]
        return float(silence.total_seconds())

    limit_s = spare.meeting.silence_limit_s
    eventually(lambda: silent_s() > 2 * limit_s, lambda: str(silent_s()))
    assert spare.meeting.waits_as_spare


def test_whoever_waits_asks_other_hosts_than_that_of_the_store(a_job: Callable[..., Job]) -> None:
    """The store takes each question for a connection; its host cannot be lost before it is."""
    job = a_job((3, 3))
    one, two = job.add("a", "b")
    (other,) = job.add("c", address="127.0.0.2")
    job.meet([one, two, other])
    spare, future = job.spare("d")
    probes = spare.meeting._dead._probes
    assert probes is not None
    eventually(lambda: set(probes._asked) == {"127.0.0.2"}, lambda: str(probes._asked))
    two.leave("it is slow")
    job.meets([one, other])
    future.result(LIMIT_S)
    assert set(probes._known) == {"127.0.0.2"}


def test_the_host_of_the_store_is_a_member_also_if_it_comes_last(a_job: Callable[..., Job]) -> None:
    job = a_job()
    nodes = job.add("a", "b", "c")
    nodes[0].meeting._is_host, nodes[2].meeting._is_host = False, True
    futures = job.meets(nodes[:2])
    eventually(lambda: nodes[0].handler._state_holder.state.participants, "nobody is first")
    host = job.meets(nodes[2:])
    assert host[0].result(LIMIT_S)[1] == 2
    eventually(lambda: sum(future.done() for future in futures) == 1, "nobody else is a member")
    (spare,) = (n for n, f in zip(nodes, futures, strict=False) if not f.done())
    eventually(lambda: spare.meeting.waits_as_spare, "it is no spare")
