"""What the agent does beside the meetings: a spare's standbys, restarts, and the ends of a run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec, WorkerState
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.launch.agent import MonitoredAgent
from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.spare_agent import SpareAgent
from relkit.launch.spares.membership import Membership
from relkit.launch.spares.settings import NodeGivenUp
from relkit.launch.warm_standby.standbys import Standbys

# An agent without torch's part.
Bare: TypeAlias = Any


def spec() -> WorkerSpec:
    return WorkerSpec(
        role="default",
        local_world_size=2,
        entrypoint=sys.executable,
        args=("-u", "train.py", "--lr", 0.1),
        rdzv_handler=SimpleNamespace(get_run_id=lambda: "job"),  # type: ignore[arg-type]
        max_restarts=3,
    )


@pytest.fixture
def agent() -> Bare:
    made: Any = SpareAgent.__new__(SpareAgent)
    made.standbys = Standbys(False, lambda _line: None)
    made.meeting = SimpleNamespace(
        is_on=True, waits_as_spare=False, may_replace=True, grows=False, leaving_why="",
        membership=Membership(restarts=2), attach=lambda _handler, _restarts: None,
        failed=lambda _trained_s: "", silence_limit_s=4.0, stop=lambda _why: True,
    )  # fmt: skip
    made.services = SimpleNamespace(
        network=None, stragglers=SimpleNamespace(min_nodes=4), slots=None, sockets=None,
        prepare=lambda _job, _count: (None, {"LD_PRELOAD": "hook.so"}),
    )  # fmt: skip
    made._worker_group = SimpleNamespace(spec=spec(), state=WorkerState.HEALTHY)
    made._meetings = SimpleNamespace(calls=BoundedCalls("test"), count_restarts=lambda _agent: None)
    made._remaining_restarts = 3
    return made


def test_a_node_that_comes_later_has_the_jobs_restarts(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpareAgent.__mro__[1], "_start_workers", lambda _agent, _group: {})
    agent._start_workers(agent._worker_group)
    assert agent._remaining_restarts == 1
    assert agent.services.stragglers.min_nodes == 1
    # Later, it counts itself; and nobody can take a place any more.
    agent._remaining_restarts, agent.meeting.may_replace = 0, False
    agent._start_workers(agent._worker_group)
    assert agent._remaining_restarts == 0
    assert agent.services.stragglers.min_nodes == 4


@pytest.mark.parametrize(
    ("grows", "state"), [(True, "HEALTHY"), (False, "HEALTHY"), (True, "FAILED")]
)
def test_what_is_in_memory_is_persisted_once_the_workers_are_stopped(
    agent: Bare, monkeypatch: pytest.MonkeyPatch, grows: bool, state: str
) -> None:
    done: list[str] = []
    monkeypatch.setattr(MonitoredAgent, "_stop_workers", lambda _agent, _group: done.append("stop"))
    agent._persist_slots = done.append
    agent.meeting.grows, agent._worker_group.state = grows, WorkerState[state]
    agent._stop_workers(agent._worker_group)
    is_persisted = grows and state == "HEALTHY"
    assert done == ["stop", *["the job takes in another node"] * is_persisted]


def test_a_node_that_is_given_up_leaves(agent: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = RunResult(state=WorkerState.FAILED)

    def monitor(self: Bare, _group: object) -> RunResult:
        self._failed("rank 1 was killed")
        return failed

    monkeypatch.setattr(MonitoredAgent, "_failed", lambda _agent, _sentence: None)
    monkeypatch.setattr(SpareAgent.__mro__[1], "_monitor_workers", monitor)
    left: list[object] = []

    def leaving(_agent: Bare, group: object, why: RelkitError) -> LeavesJob:
        left.append(group)
        return LeavesJob(why)

    monkeypatch.setattr(MonitoredAgent, "_leaving", leaving)
    assert agent._monitor_workers(agent._worker_group) is failed
    agent.meeting.failed = lambda _trained_s: "its workers failed first"
    lost = [True, False]
    monkeypatch.setattr(
        "relkit.launch.spare_agent.has_lost_a_member", lambda _look, _limit_s: lost.pop(0)
    )
    said: list[str] = []
    agent.services.log = said.append
    # Another node was lost: that may be why.
    assert agent._monitor_workers(agent._worker_group) is failed
    assert said[0].endswith("stays, although its workers failed first: another node was lost")
    with pytest.raises(LeavesJob) as error:
        agent._monitor_workers(agent._worker_group)
    assert isinstance(error.value.why, NodeGivenUp)
    assert left == [agent._worker_group]
    assert agent.meeting.leaving_why == "its workers failed first"


def test_a_spare_that_was_not_needed_has_succeeded(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MonitoredAgent, "run", lambda _agent, _role: None)
    assert agent.run().state is WorkerState.SUCCEEDED


@pytest.mark.parametrize("has_started", [True, False])
def test_a_launcher_that_is_asked_to_end_leaves_the_job(
    agent: Bare, monkeypatch: pytest.MonkeyPatch, has_started: bool
) -> None:
    def end(_agent: Bare, _role: str) -> None:
        raise SignalException("asked to end", 15)  # type: ignore[arg-type]

    left: list[object] = []
    monkeypatch.setattr(MonitoredAgent, "run", end)
    monkeypatch.setattr(
        "relkit.launch.spare_agent.leave_rendezvous", lambda handler, _calls: left.append(handler)
    )
    agent._has_started = has_started
    with pytest.raises(SignalException):
        agent.run()
    assert len(left) == has_started
    # As long as its thread waits for the others, another call would wait behind it.
    agent.meeting.stop = lambda _why: False
    with pytest.raises(SignalException):
        agent.run()
    assert len(left) == has_started
