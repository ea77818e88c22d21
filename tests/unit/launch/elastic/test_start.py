"""What comes before the workers of an attempt, and what they get."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from relkit.errors import RelkitError
from relkit.launch.elastic.job import ServicedJob
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.phases import PhaseListener
from relkit.launch.job.service import Job, Leave, MeetAgain, Service
from relkit.launch.job.settings import LocalRank
from tests.unit.launch.elastic.bare import Bare, agent_with

VARIABLE = "RELKIT_TEST_OF_A_SERVICE"


class Starting(Service):
    """Notes what it sees of a start; takes a restart from the job."""

    def __init__(self, seen: list[object], name: str) -> None:
        self.seen, self.name = seen, name
        self.job: Job | None = None

    def job_begins(self, job: Job) -> None:
        self.job = job

    def before_workers(self, attempt: Attempt) -> None:
        assert self.job is not None
        self.job.restarts_left -= 1
        self.seen.append((f"before {self.name}", attempt.number))

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        self.seen.append((f"environment {self.name}", attempt.number, attempt.job_dir))
        return {VARIABLE: self.name}

    def workers_started(self, attempt: Attempt) -> None:
        self.seen.append((f"started {self.name}", attempt.ranks))


class Starts(PhaseListener):
    """Notes when workers are about to be started."""

    def __init__(self, seen: list[object]) -> None:
        self.seen = seen

    def starts(self) -> None:
        self.seen.append("starts")

    def started(self, attempt: Attempt) -> None:
        self.seen.append("started")


def test_services_come_before_workers_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    services = [Starting(seen, "a"), Starting(seen, "b")]
    agent = agent_with(*services, phases=Starts(seen))
    for service in services:
        service.job_begins(agent._job)
    agent._prepare = lambda job_id, processes: (Path("/d") / job_id / str(processes), {})
    ranks = (LocalRank(4, 0), LocalRank(5, 0))
    agent._meeting.attempt = lambda _group, left, workers: Attempt(
        "job", 8, ranks, 3 - left, restarts_left=left, workers=workers
    )
    agent._meeting.begin_attempt = lambda attempt: seen.append(("notes", attempt.number))

    def start(*_: object) -> dict[int, Any]:
        seen.append(("torch", os.environ[VARIABLE]))
        return {0: 71, 1: 72}

    monkeypatch.setattr(LocalElasticAgent, "_start_workers", start)
    agent._worker_group.spec = SimpleNamespace(local_world_size=2)
    assert agent._start_workers(agent._worker_group) == {0: 71, 1: 72}
    assert VARIABLE not in os.environ
    folder, processes = Path("/d/job/2"), (LocalRank(4, 71), LocalRank(5, 72))
    assert seen == [
        # What the first has changed is seen from the environment on, by all.
        ("before a", 0), ("before b", 0), "starts",
        ("environment a", 2, folder), ("environment b", 2, folder), ("notes", 2), ("torch", "b"),
        ("started a", processes), ("started b", processes), "started",
    ]  # fmt: skip


class Meeting(Service):
    """Has nodes meet again so often, then leave."""

    def __init__(self, *whys: str) -> None:
        self.whys = list(whys)

    def nodes_met(self, attempt: Attempt) -> Leave | None:
        if self.whys:
            raise MeetAgain(self.whys.pop(0))
        return Leave(RelkitError("it failed its check"))


def test_nodes_meet_until_no_service_minds(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    agent: Bare = agent_with(Meeting("node 3 was lost", ""), said=said)
    meetings: list[int] = []
    monkeypatch.setattr(LocalElasticAgent, "_rendezvous", lambda *_: meetings.append(1))
    monkeypatch.setattr(ServicedJob, "leave_rendezvous", lambda _job: said.append("left"))
    agent._meeting.forget_workers_store = lambda: None
    agent._meeting.static.restarts_left = lambda counted: counted
    agent._meeting.agree = lambda _group: None
    agent._meeting.attempt = lambda *_: Attempt("job")
    with pytest.raises(LeavesJob) as left:
        agent._rendezvous(agent._worker_group)
    assert str(left.value.why) == "it failed its check"
    assert len(meetings) == 3
    assert said == ["node 3 was lost: the nodes meet again before the workers start", "left"]
