"""An agent without torch's part, and a job for services."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeAlias

from torch.distributed.elastic.agent.server.api import WorkerState

from relkit.launch.elastic.agent import JobAgent
from relkit.launch.elastic.job import ServicedJob
from relkit.launch.elastic.setup import AgentSetup
from relkit.launch.elastic.worker_exits import WorkerExits
from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.looks import Looks
from relkit.launch.job.phases import PhaseListener
from relkit.launch.job.service import Service

Bare: TypeAlias = Any


def agent_with(
    *services: Service, phases: PhaseListener | None = None, said: list[str] | None = None
) -> Bare:
    """An agent over no workers of torch's.

    Args:
        said: gets each line of the terminal.
    """
    agent: Any = JobAgent.__new__(JobAgent)
    lines = [] if said is None else said
    setup = AgentSetup(services, phases=phases or PhaseListener())
    agent._prepare, agent._log, agent._looks = setup.prepare, lines.append, Looks(lines.append)
    agent._meeting = SimpleNamespace(
        job_id="job", begin=lambda: None, static=SimpleNamespace(stop=lambda: None),
        report_failure=lambda _store: None, handler=None, calls=BoundedCalls("test"),
        restarts=lambda left: 3 - left, attempts=[],
    )  # fmt: skip
    agent._job = ServicedJob(setup, agent._meeting, agent, lines.append, agent._looks)
    agent._exits = WorkerExits(dict, agent._job.worker_ended)
    agent._remaining_restarts = 3
    agent._worker_group = SimpleNamespace(
        workers=[], store=None, state=WorkerState.HEALTHY,
        spec=SimpleNamespace(monitor_interval=0.1, max_restarts=3),
    )  # fmt: skip
    agent._pcontext = agent._worker_watchdog = agent._health_check_server = None
    return agent


def stub(**members: object) -> Bare:
    """What has these members, and no others."""
    return SimpleNamespace(**members)


def job_of(*services: Service, restarts_left: int = 1) -> Bare:
    """A job whose services have begun."""
    agent = agent_with(*services)
    agent._remaining_restarts = restarts_left
    for service in services:
        service.job_begins(agent._job)
    return agent._job
