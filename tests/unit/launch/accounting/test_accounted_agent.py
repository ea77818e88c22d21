"""Which fault the accounted agent notes, and the time of which call is which phase."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.hang.model import Manner, Suspicion
from relkit.hang.suspicion.watch import Turn, What
from relkit.launch.accounted_agent import AccountedAgent
from relkit.launch.accounting.accounts import Fault
from relkit.launch.agent import MonitoredAgent
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.settings import ExitStatus, JobAborted
from relkit.ranks import RankSet

# An agent without torch's part.
Bare: TypeAlias = Any


class Notes:
    """Accounts that remember what they were told."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.phases: list[str] = []
        self.saves: list[tuple[int, str]] = []
        self.ends: list[tuple[str, str]] = []
        self.turns: list[tuple[str, str, int]] = []
        self.in_fault = False
        self.moved_s: float | None = 1.0
        self.is_working = False

    def fault(self, fault: Fault) -> bool:
        if self.in_fault:
            return False
        self.in_fault = True
        self.faults.append(fault)
        return True

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.phases.append(name)
        yield

    def took(self, name: str, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append(f"{name} measured")

    def saved(self, step: int, by: str) -> None:
        self.saves.append((step, by))

    def begin(self, job_id: str) -> None:
        self.phases.append(f"begin {job_id}")

    def ended(self, how: str, why: str = "") -> None:
        self.ends.append((how, why))

    def look(self) -> None:
        pass

    def suspicion(self, turn: Turn) -> None:
        self.turns.append((turn.what, turn.suspicion.ranks.fold(), len(self.ends)))


@pytest.fixture
def agent() -> Bare:
    made: Any = AccountedAgent.__new__(AccountedAgent)
    made.accounts = Notes()
    made._remaining_restarts = 0
    made.turns = []

    def waiting_turns() -> list[Turn]:
        turns: list[Turn] = made.turns
        made.turns = []
        return turns

    made.services = SimpleNamespace(
        monitor=SimpleNamespace(hung=False, remote_failure="", take_suspicions=waiting_turns),
        network=None,
        stragglers=None,
        persist=None,
        slots=None,
    )
    made._exit_statuses, made._looked_s = {}, 5.0
    handler = SimpleNamespace(get_run_id=lambda: "job")
    made._worker_group = SimpleNamespace(spec=SimpleNamespace(rdzv_handler=handler))
    return made


def torch_does(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[..., Any] = lambda *_a, **_k: None
) -> None:
    monkeypatch.setattr(MonitoredAgent, name, act)


def ends_with(state: WorkerState) -> Callable[..., RunResult]:
    return lambda *_a: RunResult(state=state)


def test_a_worker_that_fails_is_a_fault_with_its_capture_and_the_others_end(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def monitor(self: Bare, _group: object) -> RunResult:
        self._exit_statuses = {1: ExitStatus(-9, 9.0)}
        self._failed("rank 1 was killed by SIGKILL")
        return RunResult(state=WorkerState.FAILED)

    torch_does(monkeypatch, "_monitor_workers", monitor)
    torch_does(monkeypatch, "_failed")
    torch_does(monkeypatch, "_stop_workers")
    agent._monitor_workers(None)
    agent._stop_workers(None)
    assert agent.accounts.faults == [
        Fault("killed by SIGKILL", "rank 1 was killed by SIGKILL", 1, 5.0)
    ]
    assert agent.accounts.phases == ["capture", "stop measured", "stop"]


def test_a_hang_has_begun_when_the_rank_moved_last(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_does(monkeypatch, "_monitor_workers", ends_with(WorkerState.HEALTHY))
    agent._monitor_workers(None)
    agent.services.monitor.hung = True
    agent._monitor_workers(None)
    seen_s = agent._hung_seen_s
    agent._monitor_workers(None)
    assert agent.accounts.faults == []
    torch_does(monkeypatch, "_monitor_workers", ends_with(WorkerState.UNHEALTHY))
    agent._monitor_workers(None)
    assert agent.accounts.faults == [Fault("hang", "the job hung", -1, 1.0, seen_s)]
    assert agent.accounts.phases == ["capture measured"]


def test_a_hang_that_moves_again_is_forgotten(agent: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_does(monkeypatch, "_monitor_workers", ends_with(WorkerState.HEALTHY))
    for hung in (True, False):
        agent.services.monitor.hung = hung
        agent._monitor_workers(None)
    torch_does(monkeypatch, "_failed")
    agent._failed("rank 0 exited with code 1")
    assert [fault.cause for fault in agent.accounts.faults] == ["worker failed"]


def test_a_job_that_is_ended_for_a_hang_has_that_fault(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def aborts(*_a: object) -> RunResult:
        raise JobAborted("the job hung and was ended")

    agent.services.monitor.hung = True
    torch_does(monkeypatch, "_monitor_workers", aborts)
    with pytest.raises(JobAborted):
        agent._monitor_workers(None)
    assert [fault.cause for fault in agent.accounts.faults] == ["hang"]


def test_a_fault_under_try_to_persist_has_its_save_and_its_step(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent._recovery = SimpleNamespace(began=True)
    agent.services.persist = SimpleNamespace(outcome=SimpleNamespace(step=12))
    agent._exit_statuses = {0: ExitStatus(75, 3.0), 1: ExitStatus(-9, 2.0)}
    torch_does(monkeypatch, "_monitor_workers", ends_with(WorkerState.FAILED))
    for _ in range(2):
        agent._monitor_workers(None)
    assert [(fault.cause, fault.rank) for fault in agent.accounts.faults] == [
        ("killed by SIGKILL", 1)
    ]
    assert agent.accounts.saves == [(12, "try-to-persist")]
    assert agent.accounts.phases.count("save measured") == 1


def test_other_nodes_that_meet_again_and_one_that_leaves_are_told_apart(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_does(monkeypatch, "_stop_workers")
    agent._stop_workers(None)
    assert [fault.cause for fault in agent.accounts.faults] == ["nodes changed"]
    agent.accounts.in_fault = False
    agent.services.stragglers = SimpleNamespace(other_leaves=lambda: "node 3 is slow")
    torch_does(monkeypatch, "_failed")
    agent._failed("rank 0 exited with code 1")
    assert agent.accounts.faults[1] == Fault("node left", "node 3 is slow", -1, 5.0)


def test_what_node_0_was_told_of_another_node_is_the_fault_here_as_well(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_does(monkeypatch, "_stop_workers")
    torch_does(monkeypatch, "_failed")
    told = "rank 9 (pid 17) was killed by SIGKILL"
    agent.services.monitor.remote_failure = told
    agent._stop_workers(None)
    assert agent.accounts.faults == [Fault("killed by SIGKILL", told, 9)]
    agent.accounts.in_fault = False
    agent._exit_statuses = {0: ExitStatus(1, 9.0)}
    agent._failed("rank 0 exited with code 1")
    assert agent.accounts.faults[1] == Fault("killed by SIGKILL", told, 9, 5.0)


def run_that_ends_with(error: BaseException) -> Callable[..., None]:
    """As torch's: it stops the workers while the error is on its way."""

    def run(self: Bare, _role: str) -> None:
        try:
            raise error
        except type(error):
            self._shutdown(signal.SIGTERM)
            raise

    return run


def test_the_schedulers_signal_is_a_fault_and_how_the_run_ended(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_does(monkeypatch, "run", run_that_ends_with(SignalException("got it", signal.SIGTERM)))
    torch_does(monkeypatch, "_shutdown")
    with pytest.raises(SignalException):
        agent.run()
    assert [fault.cause for fault in agent.accounts.faults] == ["launcher got SIGTERM"]
    assert agent.accounts.phases == ["begin job", "stop"]
    assert agent.accounts.ends == [("ended", "got it")]


def test_a_node_that_leaves_says_why(agent: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_does(monkeypatch, "run", run_that_ends_with(LeavesJob(RelkitError("it is slow"))))
    torch_does(monkeypatch, "_shutdown")
    with pytest.raises(LeavesJob):
        agent.run()
    assert agent.accounts.faults == [Fault("node leaves", "it is slow")]
    assert agent.accounts.ends == [("ended", "it is slow")]


@pytest.mark.parametrize(
    ("state", "how"), [(WorkerState.SUCCEEDED, "succeeded"), (WorkerState.FAILED, "failed")]
)
def test_how_a_run_ends(
    agent: Bare, monkeypatch: pytest.MonkeyPatch, state: WorkerState, how: str
) -> None:
    torch_does(monkeypatch, "run", ends_with(state))
    agent.run()
    assert agent.accounts.ends == [(how, "")]


def test_slots_that_are_still_to_be_locked_are_part_of_saving(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    agent.services.slots = SimpleNamespace(
        wait_collected=lambda: calls.append("wait"), newest=lambda: 4
    )
    agent.accounts.starts = lambda: calls.append("starts")
    agent.accounts.started = lambda attempt, _standbys: calls.append(f"attempt {attempt.number}")
    agent._attempt = Attempt("job", number=1)
    group = SimpleNamespace(
        spec=SimpleNamespace(max_restarts=3),
        group_rank=0,
        group_world_size=1,
        workers=[SimpleNamespace(global_rank=0, local_rank=0, world_size=1)],
    )

    def start_workers(*_a: object) -> dict[int, int]:
        calls.append("workers")
        return {0: 11}

    torch_does(monkeypatch, "_start_workers", start_workers)
    agent._start_workers(group)
    assert calls == ["starts", "workers", "attempt 1"]
    agent.accounts.in_fault = True
    calls.clear()
    agent._start_workers(group)
    assert calls == ["wait", "starts", "workers", "attempt 1"]
    assert agent.accounts.phases == ["save"]
    assert agent.accounts.saves == [(4, "memory")]


def test_what_becomes_of_suspicions_is_noted_before_the_end(
    agent: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspicion = Suspicion(RankSet.of([2]), "rank 2 has not joined", Manner.FROZEN, 12.0)
    torch_does(monkeypatch, "_monitor_workers", ends_with(WorkerState.HEALTHY))
    agent.turns = [Turn(What.BEGAN, suspicion)]
    agent._monitor_workers(None)
    agent._monitor_workers(None)
    assert agent.accounts.turns == [("began", "2", 0)]

    def run(*_args: object) -> None:
        agent.turns = [Turn(What.WENT_ON, suspicion)]

    torch_does(monkeypatch, "run", run)
    agent.run()
    assert agent.accounts.turns == [("began", "2", 0), ("went on", "2", 0)]
    assert len(agent.accounts.ends) == 1
