"""The launcher's agent between two steps of torch's."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.launch.agent import MonitoredAgent
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.job.leaves_job import LeavesJob


class Recovery:
    """Notes what a launcher that is asked to end saves first."""

    def __init__(self) -> None:
        self.saved: list[str] = []

    def save_first(self, name: str) -> None:
        self.saved.append(name)


def test_a_signal_between_the_start_of_workers_and_what_torch_notes_of_them() -> None:
    """It ended in a TypeError, before the workers were ended."""
    agent: Any = MonitoredAgent.__new__(MonitoredAgent)
    worker = SimpleNamespace(global_rank=0, local_rank=0, id=None)
    agent._worker_group = SimpleNamespace(workers=[worker])
    agent._seen_alive_unix_s, agent._recovery = {}, Recovery()
    agent._save_first(signal.SIGTERM)
    assert agent._recovery.saved == ["SIGTERM"]
    assert agent._exit_statuses == {}
    # torch has noted it: a process that is there.
    pid = os.fork()
    if not pid:
        signal.pause()
    try:
        worker.id = pid
        agent._save_first(signal.SIGINT)
        assert list(agent._seen_alive_unix_s) == [0]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Slots:
    """Notes what is to be persisted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, SavedStep | None]] = []

    def persist(self, trigger: str, by_ttp: SavedStep | None = None) -> None:
        self.asked.append((trigger, by_ttp))


class Quiet:
    """A monitor of a job that may hang."""

    hung = False

    def action(self) -> None:
        return None

    def pause(self) -> None:
        return None


def agent_with(slots: Slots, **services: object) -> Any:  # noqa: ANN401
    agent: Any = MonitoredAgent.__new__(MonitoredAgent)
    agent.services = SimpleNamespace(
        **{"slots": slots, "monitor": Quiet(), "persist": None, "stragglers": None, **services}
    )
    agent._worker_group = SimpleNamespace(workers=[], spec=SimpleNamespace(monitor_interval=0.1))
    agent._pcontext = agent._worker_watchdog = agent._health_check_server = None
    agent._seen_alive_unix_s = {}
    return agent


def test_a_hang_has_the_slots_persisted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots()
    agent = agent_with(slots)
    healthy = SimpleNamespace(state=WorkerState.HEALTHY)
    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", lambda *_: healthy)
    agent._monitor_workers(agent._worker_group)
    agent.services.monitor.hung = True
    agent._monitor_workers(agent._worker_group)
    agent._monitor_workers(agent._worker_group)
    assert slots.asked == [("the job hangs", None)]


def test_a_launcher_that_is_asked_to_end_has_the_slots_persisted() -> None:
    slots = Slots()
    agent = agent_with(slots)
    for ending in (
        SignalException("asked", signal.SIGINT),
        LeavesJob(RelkitError("this node is slow")),
    ):
        try:
            raise ending
        except SignalException as error:
            agent._shutdown(error.sigval)
    agent._shutdown()  # the workers are restarted, or the job is done
    assert [trigger for trigger, _ in slots.asked] == [
        "the launcher got SIGINT",
        "this node is slow",
    ]


def test_what_try_to_persist_has_saved_is_passed_on() -> None:
    slots = Slots()
    outcome = SimpleNamespace(step=7, folder="/ck/iter_0000007")
    agent = agent_with(slots, persist=SimpleNamespace(outcome=outcome))
    agent._persist_slots("rank 1 died")
    outcome.step = -1
    agent._persist_slots("rank 1 died")
    assert slots.asked == [
        ("rank 1 died", SavedStep(7, "/ck/iter_0000007")),
        ("rank 1 died", None),
    ]


def test_a_failure_that_torch_has_seen_first_is_told_with_the_rank_that_it_did_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    agent = agent_with(Slots())
    agent.services.monitor.failed = told.append
    failures = {
        rank: SimpleNamespace(pid=70 + rank, exitcode=code) for rank, code in ((0, -15), (1, 3))
    }
    failed = SimpleNamespace(state=WorkerState.FAILED, failures=failures)
    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", lambda *_: failed)
    assert agent._monitor_workers(agent._worker_group) is failed
    assert told == ["rank 1 (pid 71) exited with code 3"]
    assert {rank: end.exit_code for rank, end in agent._exit_statuses.items()} == {0: -15, 1: 3}
