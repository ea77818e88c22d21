"""What a job with spares does beside its meetings: restarts, nodes given up, a run's end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.service import Leave, Service, Stop, WorkerState
from relkit.launch.spares.membership import Membership
from relkit.launch.spares.service import SpareService
from relkit.launch.spares.settings import NodeGivenUp
from tests.unit.launch.elastic.bare import agent_with, stub

FAILED = "rank 1 was killed"


class Kept(Service):
    """Notes what breaks the job off."""

    def __init__(self) -> None:
        self.triggers: list[str] = []

    def breaks_off(self, trigger: str) -> None:
        self.triggers.append(trigger)


class Scene:
    """A service that has begun, and what is around it."""

    def __init__(self) -> None:
        self.meeting = stub(
            is_on=True, waits_as_spare=False, may_replace=True, grows=False, leaving_why="",
            membership=Membership(restarts=2), attach=lambda _handler, _restarts: None,
            failed=lambda _trained_s: "", silence_limit_s=4.0, stop=lambda _why: True,
            first_exchange=lambda store: ("seen", store),
        )  # fmt: skip
        self.stragglers = SimpleNamespace(min_nodes=4)
        self.said: list[str] = []
        self.kept = Kept()
        self.service = SpareService(self.meeting, self.stragglers, self.said.append)
        self.agent = agent_with(self.service, self.kept)
        self.job = self.agent._job
        self.service.job_begins(self.job)

    def attempt(self) -> Attempt:
        left = self.job.restarts_left
        return Attempt("job", number=3 - left, restarts_left=left)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_node_that_comes_later_has_the_jobs_restarts(scene: Scene) -> None:
    scene.service.before_workers(scene.attempt())
    assert scene.job.restarts_left == 1
    assert scene.stragglers.min_nodes == 1
    # Later, it counts itself; and nobody can take a place any more.
    scene.job.restarts_left, scene.meeting.may_replace = 0, False
    scene.service.before_workers(scene.attempt())
    assert scene.job.restarts_left == 0
    assert scene.stragglers.min_nodes == 4


def test_nodes_learn_their_ranks_by_a_store_that_sees_losses(scene: Scene) -> None:
    assert scene.job.rank_store("store") == ("seen", "store")


@pytest.mark.parametrize(
    ("grows", "stop"), [(True, Stop.MEET_AGAIN), (False, Stop.MEET_AGAIN), (True, Stop.RESTART)]
)
def test_what_is_in_memory_is_persisted_once_the_workers_are_stopped(
    scene: Scene, grows: bool, stop: Stop
) -> None:
    scene.meeting.grows = grows
    scene.service.before_stop(scene.attempt(), stop)
    assert scene.kept.triggers == []
    scene.meeting.grows = False  # what has been seen before counts
    scene.service.stopped(scene.attempt(), stop)
    is_persisted = grows and stop is Stop.MEET_AGAIN
    assert scene.kept.triggers == ["the job takes in another node"] * is_persisted


def fails(scene: Scene) -> Leave | None:
    """One look in which a worker fails: what the service wants."""
    service, attempt = scene.service, scene.attempt()
    assert service.takes_over(attempt, FAILED) is None
    service.worker_failed(attempt, FAILED)
    service.failure_captured(attempt, FAILED)
    action = service.looked(attempt, WorkerState.FAILED)
    assert action is None or isinstance(action, Leave)
    return action


def test_a_node_that_is_given_up_leaves(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fails(scene) is None
    scene.meeting.failed = lambda _trained_s: "its workers failed first"
    lost = [True, False]
    monkeypatch.setattr(
        "relkit.launch.spares.service.has_lost_a_member", lambda _look, _limit_s: lost.pop(0)
    )
    # Another node was lost: that may be why.
    assert fails(scene) is None
    assert scene.said[0].endswith("stays, although its workers failed first: another node was lost")
    leave = fails(scene)
    assert leave is not None
    assert isinstance(leave.why, NodeGivenUp)
    scene.service.leaves(leave.why)
    assert scene.meeting.leaving_why == "its workers failed first"


def test_a_spare_counts_as_one_that_has_met(scene: Scene) -> None:
    assert not scene.agent.started
    scene.meeting.waits_as_spare = True
    assert scene.agent.started


@pytest.mark.parametrize("has_started", [True, False])
def test_a_launcher_that_is_asked_to_end_leaves_the_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, has_started: bool
) -> None:
    left: list[object] = []
    monkeypatch.setattr(
        "relkit.launch.elastic.job.leave_rendezvous", lambda handler, _calls: left.append(handler)
    )
    if has_started:
        scene.service.before_workers(scene.attempt())
    for ended_by in (None, RelkitError("no"), LeavesJob(RelkitError("has left already"))):
        scene.job.ended_by = ended_by
        scene.service.close()
    assert left == []
    scene.job.ended_by = SignalException("asked to end", 15)  # type: ignore[arg-type]
    scene.service.close()
    assert len(left) == has_started
    # As long as its thread waits for the others, another call would wait behind it.
    scene.meeting.stop = lambda _why: False
    scene.service.close()
    assert len(left) == has_started
