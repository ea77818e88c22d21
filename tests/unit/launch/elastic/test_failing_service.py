"""A service that fails is nothing to the job, nor to the other services, whichever call it is."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Service, Stop
from relkit.launch.job.service import WorkerState as State
from relkit.launch.job.settings import JobAborted, LocalRank
from tests.unit.launch.elastic.bare import Bare, agent_with

ATTEMPT = Attempt("job", 2, (LocalRank(0, 71), LocalRank(1, 72)))
CALLS: dict[str, Callable[[Bare], object]] = {
    "before_workers": lambda job: job.before_workers(ATTEMPT),
    "environment": lambda job: job.environment(ATTEMPT),
    "workers_started": lambda job: job.workers_started(ATTEMPT),
    "worker_ended": lambda job: job.worker_ended(1, "rank 1 ended"),
    "takes_over": lambda job: job.taken_over(ATTEMPT, ""),
    "worker_failed": lambda job: job.failed(ATTEMPT, "rank 1 died", {}),
    "failure_captured": lambda job: job.failed(ATTEMPT, "rank 1 died", {}),
    "poll": lambda job: job.polled(ATTEMPT),
    "looked": lambda job: job.looked(ATTEMPT, State.HEALTHY),
    "leaves": lambda job: job.leaving(RelkitError("it is slow")),
    "breaks_off": lambda job: job.breaks_off("the job hangs"),
    "save_first": lambda job: job.save_first(ATTEMPT, signal.SIGTERM),
    "before_stop": lambda job: job.before_stop(ATTEMPT, Stop.END),
    "stopped": lambda job: job.stopped(ATTEMPT, Stop.END),
    "exit_code": lambda job: job.exit_code(ATTEMPT),
}
ERRORS = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), KeyError("x"), AssertionError()]


class Noting(Service):
    """Notes each call; one of them fails.

    Args:
        calls: where it notes; fails: that call; error: with which.
    """

    def __init__(
        self, calls: list[str], fails: str = "", error: BaseException | None = None
    ) -> None:
        self.calls, self.fails, self.error = calls, fails, error

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        if name not in CALLS:
            return super().__getattribute__(name)
        answer = super().__getattribute__(name)

        def call(*given: object) -> object:
            self.calls.append(name)
            if name == self.fails and self.error is not None:
                raise self.error
            return answer(*given)

        return call


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", CALLS)
def test_the_next_service_is_asked_all_the_same(
    monkeypatch: pytest.MonkeyPatch, call: str, error: Exception
) -> None:
    said: list[str] = []
    calls: list[str] = []
    agent = agent_with(Noting([], call, error), Noting(calls), said=said)
    monkeypatch.setattr(type(agent._job), "leave_rendezvous", lambda _job: None)
    CALLS[call](agent._job)
    assert call in calls
    (line,) = said
    assert line.startswith("Noting failed, which is nothing to the job: ")
    assert type(error).__name__ in line or "Too many open files" in line


@pytest.mark.parametrize("end", [SignalException("asked", signal.SIGTERM), JobAborted("it hung")])
@pytest.mark.parametrize("call", CALLS)
def test_what_ends_the_launcher_on_purpose_goes_through(call: str, end: Exception) -> None:
    agent = agent_with(Noting([], call, end))
    with pytest.raises(type(end)):
        CALLS[call](agent._job)


@pytest.mark.parametrize("call", ["breaks_off", "save_first", "before_stop"])
def test_workers_are_ended_although_a_service_fails_at_their_end(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """They were left behind: torch was not asked to end them."""
    agent = agent_with(Noting([], call, KeyError("x")))
    ended: list[object] = []
    monkeypatch.setattr(
        LocalElasticAgent, "_shutdown", lambda _self, number, **_how: ended.append(number)
    )
    try:
        raise SignalException("asked", signal.SIGINT)
    except SignalException as error:
        agent._shutdown(error.sigval)
    assert ended == [signal.SIGINT]


@pytest.mark.parametrize("call", ["environment", "workers_started"])
def test_who_has_not_seen_workers_start_is_not_asked_about_them(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """What it knows is of the workers before them."""
    calls: list[str] = []
    service = Noting(calls, call, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    agent = agent_with(service)
    agent._meeting.attempt = lambda _group, _left, _workers: ATTEMPT
    agent._meeting.begin_attempt = lambda _attempt: None
    agent._worker_group.spec.local_world_size = 2
    agent._prepare = lambda _id, _n: (Path("/d"), {})
    monkeypatch.setattr(LocalElasticAgent, "_start_workers", lambda *_: {0: 71, 1: 72})
    monkeypatch.setattr(
        LocalElasticAgent, "_monitor_workers", lambda *_: RunResult(state=WorkerState.HEALTHY)
    )

    def attempt_of_a_job() -> list[str]:
        calls.clear()
        agent._start_workers(agent._worker_group)
        agent._monitor_workers(agent._worker_group)
        agent._job.worker_ended(1, "rank 1 died")
        agent._job.failed(ATTEMPT, "rank 1 died", {})
        agent._job.save_first(ATTEMPT, signal.SIGTERM)
        agent._stop_workers(agent._worker_group)
        return list(calls)

    started = ["before_workers", "environment", "workers_started"]
    ended = ["breaks_off", "before_stop", "stopped"]
    assert attempt_of_a_job() == [*started[: started.index(call) + 1], *ended]
    service.fails = ""
    asked = attempt_of_a_job()
    assert asked[:6] == [*started, "takes_over", "poll", "looked"]
    assert "worker_failed" in asked
