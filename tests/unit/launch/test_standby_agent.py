"""What the agent does with its standbys while the workers run."""

from __future__ import annotations

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
