"""What the agent does with its standbys while the workers run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, WorkerState

from relkit.launch.agent import MonitoredAgent
from relkit.launch.standby_agent import StandbyAgent


class Deaths:
    """Notes which kills are not the ranks'."""

    def __init__(self) -> None:
        self.discounted: list[int] = []

    def discount_kills(self, count: int) -> None:
        self.discounted.append(count)


class Waiting:
    """Standbys of which so many were killed."""

    is_wanted = True

    def __init__(self, killed: int) -> None:
        self.killed = killed
        self.asked: list[bool] = []
        self.hurried = 0

    def hurry(self) -> None:
        self.hurried += 1

    def look(self, *, may_start: bool) -> int:
        self.asked.append(may_start)
        return self.killed


def agent_with(standbys: Waiting, restarts: int) -> Any:  # noqa: ANN401
    agent: Any = StandbyAgent.__new__(StandbyAgent)
    agent.standbys, agent._remaining_restarts, agent._deaths = standbys, restarts, Deaths()
    return agent


@pytest.mark.parametrize(("state", "looks"), [("HEALTHY", 1), ("FAILED", 0), ("SUCCEEDED", 0)])
@pytest.mark.parametrize("killed", [0, 2])
def test_a_standby_that_was_killed_is_no_oom_kill_of_a_rank(
    monkeypatch: pytest.MonkeyPatch, state: str, looks: int, killed: int
) -> None:
    result = RunResult(state=WorkerState[state])
    monkeypatch.setattr(MonitoredAgent, "_monitor_workers", lambda _agent, _group: result)
    agent = agent_with(Waiting(killed), restarts=1)
    assert agent._monitor_workers(SimpleNamespace()) is result
    assert len(agent.standbys.asked) == looks
    assert agent._deaths.discounted == [killed] * bool(looks and killed)


@pytest.mark.parametrize(("restarts", "may_start"), [(0, False), (1, True)])
def test_new_ones_are_for_a_restart_that_is_left(
    monkeypatch: pytest.MonkeyPatch, restarts: int, may_start: bool
) -> None:
    result = RunResult(state=WorkerState.HEALTHY)
    monkeypatch.setattr(MonitoredAgent, "_monitor_workers", lambda _agent, _group: result)
    monkeypatch.setattr(StandbyAgent, "is_training", True)
    agent = agent_with(Waiting(0), restarts)
    agent._monitor_workers(SimpleNamespace())
    assert agent.standbys.asked == [may_start]


@pytest.mark.parametrize(("restarts", "hurried"), [(0, 0), (1, 1)])
def test_a_failure_has_them_hurry_where_there_will_be_a_restart(
    monkeypatch: pytest.MonkeyPatch, restarts: int, hurried: int
) -> None:
    monkeypatch.setattr(MonitoredAgent, "_failed", lambda _agent, _why: None)
    monkeypatch.setattr(MonitoredAgent, "_restart_workers", lambda _agent, _group: None)
    agent = agent_with(Waiting(0), restarts)
    agent._failed("rank 0 was killed")
    assert agent.standbys.hurried == hurried
    # Also where another node has failed.
    agent._restart_workers(SimpleNamespace())
    assert agent.standbys.hurried == hurried + 1


@pytest.mark.parametrize(
    ("sockets", "job_dir", "folder"),
    [
        (Path("/s"), Path("/j"), "/j"), (Path("/s"), None, "/s"), (None, None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_wanted", [True, False])
def test_workers_note_their_imports_where_standbys_are_wanted(
    sockets: Path | None, job_dir: Path | None, folder: str | None, is_wanted: bool
) -> None:
    agent = agent_with(Waiting(0), restarts=1)
    agent.standbys.is_wanted = is_wanted
    agent.services = SimpleNamespace(sockets=SimpleNamespace(path=sockets))
    variables = {"RELKIT_IMPORTS_DIR": folder} if folder and is_wanted else {}
    assert agent._more_environment(job_dir) == variables
