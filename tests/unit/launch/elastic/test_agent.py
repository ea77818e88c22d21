"""The launcher's agent between two steps of torch's: which service is asked what, and when."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.phases import LookEnd, Phase, PhaseListener
from relkit.launch.job.service import Action, End, Hold, Leave, LookOnly, Restart, Service, Stop
from relkit.launch.job.service import WorkerState as State
from relkit.launch.job.settings import ExitStatus, JobAborted
from tests.unit.launch.elastic.bare import Bare, agent_with


class Noting(Service):
    """Notes what it is asked.

    Args:
        calls: where it notes; name: of this service.
        answers: by call; each is given once, the last one again and again.
    """

    def __init__(self, calls: list[str], name: str = "", **answers: list[Action | None]) -> None:
        self.calls, self.name, self.answers = calls, name, answers

    def _note(self, call: str, more: str = "") -> Action | None:
        self.calls.append(f"{self.name} {call} {more}".strip())
        answers = self.answers.get(call, [None])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def takes_over(self, attempt: Attempt, failure: str) -> Action | None:
        return self._note("takes_over", failure)

    def worker_ended(self, rank: int, how: str) -> None:
        self._note("worker_ended", str(rank))

    def worker_failed(self, attempt: Attempt, failure: str) -> None:
        self._note("worker_failed", failure)

    def failure_captured(self, attempt: Attempt, failure: str) -> None:
        self._note("failure_captured")

    def poll(self, attempt: Attempt) -> Action | None:
        return self._note("poll")

    def looked(self, attempt: Attempt, state: State) -> Action | None:
        return self._note("looked", state.name)

    def leaves(self, why: RelkitError) -> None:
        self._note("leaves", str(why))

    def breaks_off(self, trigger: str) -> None:
        self._note("breaks_off", trigger)

    def save_first(self, attempt: Attempt, number: signal.Signals) -> None:
        self._note("save_first", number.name)

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        self._note("before_stop", stop.name)
        return None

    def stopped(self, attempt: Attempt, stop: Stop) -> None:
        self._note("stopped", stop.name)


class Phases(PhaseListener):
    """Notes how looks end, and which phases there are."""

    def __init__(self) -> None:
        self.ends: list[tuple[LookEnd, bool]] = []
        self.phases: list[Phase] = []
        self.run: list[tuple[str, str]] = []

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        self.phases.append(phase)
        return nullcontext()

    def look_ended(self, end: LookEnd, ends: Mapping[int, ExitStatus], *, is_led: bool) -> None:
        self.ends.append((end, is_led))

    def job_ended(self, how: str, why: str) -> None:
        self.run.append((how, why))


def torch_sees(
    patch: pytest.MonkeyPatch, calls: list[str], state: WorkerState = WorkerState.HEALTHY
) -> None:
    def look(*_: object) -> RunResult:
        calls.append("torch")
        return RunResult(state=state)

    patch.setattr(LocalElasticAgent, "_monitor_workers", look)


def failing(agent: Bare, *sentences: str) -> None:
    """Polls of the workers give these sentences, then nothing."""
    left = list(sentences)
    agent._exits.poll = lambda _workers: left.pop(0) if left else ""
    agent._exits.settle = lambda _workers: None


def look(agent: Bare) -> Any:  # noqa: ANN401
    return agent._monitor_workers(agent._worker_group)


def test_a_look_asks_all_in_their_order_around_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    agent = agent_with(Noting(calls, "a"), Noting(calls, "b"))
    torch_sees(monkeypatch, calls)
    assert look(agent).state is WorkerState.HEALTHY
    assert calls == [
        "a takes_over", "b takes_over", "a poll", "b poll", "torch",
        "a looked HEALTHY", "b looked HEALTHY",
    ]  # fmt: skip


def test_a_failure_is_told_after_who_may_take_over_and_before_torch_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    agent = agent_with(Noting(calls))
    torch_sees(monkeypatch, calls)
    failing(agent, "rank 1 died")
    look(agent)
    assert calls == [
        "takes_over rank 1 died", "breaks_off rank 1 died", "worker_failed rank 1 died",
        "failure_captured", "poll", "torch", "looked HEALTHY",
    ]  # fmt: skip


def test_workers_that_are_led_are_left_to_torch_alone_once_they_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    phases = Phases()
    leads: list[Action | None] = [Hold(), Hold(), LookOnly()]
    agent = agent_with(Noting(calls, "a", takes_over=leads), Noting(calls, "b"), phases=phases)
    torch_sees(monkeypatch, calls, WorkerState.FAILED)
    failing(agent, "rank 1 died")
    monkeypatch.setattr("relkit.launch.elastic.agent._HOLD_S", 0.0)
    assert look(agent).state is WorkerState.FAILED
    assert calls == [
        *["a takes_over rank 1 died"] * 3, "torch", "a looked FAILED", "b looked FAILED"
    ]  # fmt: skip
    assert phases.ends == [(LookEnd.FAILED, True)]


def test_a_failure_that_torch_has_seen_first_is_told_with_the_rank_that_it_did_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    agent = agent_with(Noting(calls))
    failures = {
        rank: SimpleNamespace(pid=70 + rank, exitcode=code) for rank, code in ((0, -15), (1, 3))
    }
    failed = SimpleNamespace(state=WorkerState.FAILED, failures=failures)
    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", lambda *_: failed)
    assert look(agent) is failed
    assert "worker_failed rank 1 (pid 71) exited with code 3" in calls
    assert {rank: end.exit_code for rank, end in agent._exits.seen.items()} == {0: -15, 1: 3}


@pytest.mark.parametrize("call", ["takes_over", "poll", "looked"])
def test_a_node_leaves_where_a_service_says_so(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    calls: list[str] = []
    phases = Phases()
    noting = Noting(calls)
    noting.answers[call] = [Leave(RelkitError("it is slow"))]
    agent = agent_with(noting, phases=phases)
    torch_sees(monkeypatch, calls)
    with pytest.raises(LeavesJob, match="it is slow"):
        look(agent)
    assert calls[-1] == "leaves it is slow"
    assert phases.ends == [(LookEnd.BROKEN, False)]


def test_what_a_service_wants_done_is_done_before_torch_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    said: list[str] = []
    phases = Phases()
    wants: list[Action | None] = [Restart("again"), End(JobAborted("the job hung"))]
    agent = agent_with(Noting(calls, poll=wants), said=said, phases=phases)
    torch_sees(monkeypatch, calls)
    assert look(agent).state is WorkerState.UNHEALTHY
    with pytest.raises(JobAborted):
        look(agent)
    assert said == ["again"]
    assert "torch" not in calls
    assert [end for end, _ in phases.ends] == [LookEnd.RESTARTS, LookEnd.ABORTED]


def test_a_round_that_fails_is_torchs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def poll(_workers: object) -> str:
        raise full

    agent = agent_with(said=said)
    agent._exits.poll = poll
    blind: list[bool] = []

    def plain(agent: Bare, _group: object) -> object:
        blind.append(agent._looks.is_blind)
        return SimpleNamespace(state=WorkerState.HEALTHY)

    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", plain)
    for _ in range(3):
        assert look(agent).state is WorkerState.HEALTHY
    assert blind == [True] * 3
    assert not agent._looks.is_blind
    assert said == [
        "watching the workers failed, which is nothing to the job: [Errno 24] Too many open files"
    ]


def test_a_signal_between_the_start_of_workers_and_what_torch_notes_of_them() -> None:
    """It ended in a TypeError, before the workers were ended."""
    calls: list[str] = []
    agent = agent_with(Noting(calls))
    worker = SimpleNamespace(global_rank=0, local_rank=0, id=None)
    agent._worker_group.workers = [worker]
    agent._save_first(signal.SIGTERM)
    assert calls == ["save_first SIGTERM"]
    assert agent._exits.seen == {}
    # torch has noted it: a process that is there.
    pid = os.fork()
    if not pid:
        signal.pause()
    try:
        worker.id = pid
        agent._save_first(signal.SIGINT)
        assert list(agent._exits._seen_alive_unix_s) == [0]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    agent._save_first(signal.SIGINT)
    assert calls[-1] == "worker_ended 0"


@pytest.mark.parametrize(
    ("ending", "trigger"),
    [
        (SignalException("asked", signal.SIGINT), "the launcher got SIGINT"),
        (LeavesJob(RelkitError("this node is slow")), "this node is slow"),
        (None, None),  # the workers are restarted, or the job is done
    ],
)
def test_a_launcher_that_is_asked_to_end_has_kept_what_would_be_lost(
    ending: SignalException | None, trigger: str | None
) -> None:
    calls: list[str] = []
    agent = agent_with(Noting(calls))
    try:
        if ending is not None:
            raise ending
        agent._shutdown()
    except SignalException as error:
        agent._shutdown(error.sigval)
    number = signal.SIGTERM if ending is None else ending.sigval
    broken = [f"breaks_off {trigger}"] if trigger else []
    assert calls == [f"save_first {number.name}", *broken, "before_stop END"]


@pytest.mark.parametrize(
    ("state", "stop"), [("HEALTHY", "MEET_AGAIN"), ("FAILED", "RESTART"), ("", "END")]
)
def test_why_workers_are_stopped_is_known_and_asked_once(
    monkeypatch: pytest.MonkeyPatch, state: str, stop: str
) -> None:
    calls: list[str] = []
    agent = agent_with(Noting(calls))
    monkeypatch.setattr(LocalElasticAgent, "_initialize_workers", lambda *_: None)
    for _ in range(2):
        if state:
            agent._worker_group.state = WorkerState[state]
            agent._worker_group.spec.role = "default"
            agent._restart_workers(agent._worker_group)
        else:
            agent._stop_workers(agent._worker_group)
    assert calls == [f"before_stop {stop}", "save_first SIGTERM", f"stopped {stop}"] * 2


def run_that_ends_with(error: BaseException) -> Callable[..., None]:
    """As torch's: it stops the workers while the error is on its way."""

    def run(self: Bare, _role: str) -> None:
        try:
            raise error
        except type(error):
            self._shutdown(signal.SIGTERM)
            raise

    return run


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (SignalException("got it", signal.SIGTERM), ("ended", "got it")),
        (LeavesJob(RelkitError("it is slow")), ("ended", "it is slow")),
        (JobAborted("the job hung"), ("failed", "the job hung")),
    ],
)
def test_how_a_run_that_is_broken_off_ends(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, end: tuple[str, str]
) -> None:
    phases = Phases()
    agent = agent_with(phases=phases)
    monkeypatch.setattr(LocalElasticAgent, "run", run_that_ends_with(error))
    with pytest.raises(type(error)):
        agent.run()
    assert phases.run == [end]
    assert agent._job.ended_by is error


@pytest.mark.parametrize(
    ("result", "how"),
    [
        (RunResult(state=WorkerState.SUCCEEDED), "succeeded"),
        (RunResult(state=WorkerState.FAILED), "failed"),
        (None, "succeeded"),  # a spare that was not needed
    ],
)
def test_how_a_run_ends(
    monkeypatch: pytest.MonkeyPatch, result: RunResult | None, how: str
) -> None:
    phases = Phases()
    agent = agent_with(phases=phases)
    monkeypatch.setattr(LocalElasticAgent, "run", lambda *_: result)
    assert agent.run().is_failed() is (how == "failed")
    assert phases.run == [(how, "")]
