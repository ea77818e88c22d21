"""Where nobody can look at the workers, torch still does, and it does not wait for the launcher."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from relkit.launch.accounted_agent import AccountedAgent
from relkit.launch.guarded_agent import GuardedAgent
from relkit.launch.job.looks import Looks
from relkit.launch.job.settings import JobAborted


def agent_whose_looks(
    monkeypatch: pytest.MonkeyPatch, raise_: Exception, said: list[str]
) -> tuple[Any, list[bool]]:
    """An agent, and whether torch's look was blind each time."""
    agent: Any = GuardedAgent.__new__(GuardedAgent)
    agent.looks = Looks(said.append)
    blind: list[bool] = []

    def look(*_: object) -> object:
        raise raise_

    def plain(agent: Any, _group: object) -> object:  # noqa: ANN401
        blind.append(agent.looks.is_blind)
        return SimpleNamespace(state=WorkerState.HEALTHY)

    monkeypatch.setattr(AccountedAgent, "_monitor_workers", look)
    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", plain)
    return agent, blind


def test_a_round_that_fails_is_torchs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    agent, blind = agent_whose_looks(monkeypatch, full, said)
    for _ in range(3):
        assert agent._monitor_workers(SimpleNamespace()).state is WorkerState.HEALTHY
    assert blind == [True] * 3
    assert not agent.looks.is_blind
    assert said == [
        "watching the workers failed, which is nothing to the job: [Errno 24] Too many open files"
    ]


def test_a_job_that_is_to_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, blind = agent_whose_looks(monkeypatch, JobAborted("the job hung"), [])
    with pytest.raises(JobAborted):
        agent._monitor_workers(SimpleNamespace())
    assert blind == []
