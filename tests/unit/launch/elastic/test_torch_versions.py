"""What the agent takes over from torch, in the forms that it has in torch 2.4 and later."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from relkit.launch.elastic import exit_barrier
from relkit.launch.elastic.agent import JobAgent
from relkit.launch.elastic.exit_barrier import ended_key
from relkit.launch.elastic.meeting import JobMeeting
from relkit.launch.hang.service import HUNG_SHUTDOWN_S
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.service import Service, Stop
from tests.unit.launch.elastic.bare import agent_with

# What torch calls it with, beside the agent -> what it got in the end.
Call = Callable[[Any], object]
Got = Mapping[str, object]


class UpTo27:
    """As torch 2.4 to 2.7."""

    calls: ClassVar[list[Got]] = []

    def _stop_workers(self, _worker_group: object, is_restart: bool = False) -> None:
        self._shutdown(is_restart=is_restart)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, is_restart: bool = False
    ) -> None:
        UpTo27.calls.append({"death_sig": death_sig, "is_restart": is_restart})


class UpTo211:
    """As torch 2.8 to 2.11."""

    calls: ClassVar[list[Got]] = []

    def _stop_workers(self, _worker_group: object) -> None:
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM) -> None:
        UpTo211.calls.append({"death_sig": death_sig})


class Since212:
    """As torch 2.12 and later."""

    calls: ClassVar[list[Got]] = []

    def _stop_workers(self, _worker_group: object) -> None:
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        Since212.calls.append({"death_sig": death_sig, "timeout": timeout})


Form = type[UpTo27] | type[UpTo211] | type[Since212]
FORMS: tuple[Form, ...] = (UpTo27, UpTo211, Since212)


class Context:
    """Of workers: notes how they are closed."""

    def __init__(self) -> None:
        self.closed: list[tuple[object, ...]] = []

    def pids(self) -> dict[int, int]:
        return {}

    def close(self, *how: object) -> None:
        self.closed.append(how)


class Hung(Service):
    """Says that the job hangs."""

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        return HUNG_SHUTDOWN_S


def agent_over(form: Form, patch: pytest.MonkeyPatch, *, hung: bool = False) -> Any:  # noqa: ANN401
    """An agent over torch's of such a form, with workers."""
    form.calls.clear()
    for name in ("_stop_workers", "_shutdown"):
        patch.setattr(LocalElasticAgent, name, vars(form)[name])
    agent = agent_with(*[Hung()] * hung)
    agent._pcontext = Context()
    return agent


@pytest.mark.parametrize(
    ("form", "call", "got"),
    [
        (
            UpTo27,
            lambda agent: agent._stop_workers(SimpleNamespace(state=None), is_restart=True),
            {"death_sig": signal.SIGTERM, "is_restart": True},
        ),
        # Not False: a node that leaves must not close the rendezvous for the others.
        (
            UpTo27,
            lambda agent: agent._shutdown(signal.SIGINT),
            {"death_sig": signal.SIGINT, "is_restart": True},
        ),
        (
            UpTo211,
            lambda agent: agent._stop_workers(SimpleNamespace(state=None)),
            {"death_sig": signal.SIGTERM},
        ),
        (
            Since212,
            lambda agent: agent._shutdown(signal.SIGINT, timeout=90),
            {"death_sig": signal.SIGINT, "timeout": 90},
        ),
        (
            Since212,
            lambda agent: agent._shutdown(signal.SIGINT, 90),
            {"death_sig": signal.SIGINT, "timeout": 90},
        ),
    ],
)
def test_torch_gets_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, form: Form, call: Call, got: Got
) -> None:
    agent = agent_over(form, monkeypatch)
    call(agent)
    assert form.calls == [got]
    assert agent._pcontext.closed == []


@pytest.mark.parametrize("form", FORMS)
def test_workers_that_hang_get_little_time_to_end(
    monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    agent = agent_over(form, monkeypatch, hung=True)
    agent._shutdown()
    by_torch = form.calls[0].get("timeout")
    by_us = [(signal.SIGTERM, HUNG_SHUTDOWN_S)] if by_torch is None else []
    assert by_torch in (None, HUNG_SHUTDOWN_S)
    assert agent._pcontext.closed == by_us


def test_less_time_than_that_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_over(Since212, monkeypatch, hung=True)
    agent._shutdown(signal.SIGTERM, timeout=2)
    assert Since212.calls == [{"death_sig": signal.SIGTERM, "timeout": 2}]


@pytest.mark.parametrize("form", FORMS)
def test_a_hung_job_without_workers(monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    agent = agent_over(form, monkeypatch, hung=True)
    agent._pcontext = None
    agent._shutdown()
    assert len(form.calls) == 1


def overrides() -> Iterator[tuple[type, str]]:
    """The methods of torch's agent that a class of ours has as well."""
    for kind in JobAgent.__mro__[: JobAgent.__mro__.index(LocalElasticAgent)]:
        for name in vars(kind):
            if not name.startswith("__") and callable(getattr(LocalElasticAgent, name, None)):
                yield kind, name


def calls_of(method: Callable[..., object]) -> Iterator[tuple[list[object], dict[str, object]]]:
    """All ways to call it that differ in which arguments are given, and by name or by place."""
    (_, *parameters) = inspect.signature(method).parameters.values()
    required = sum(each.default is each.empty for each in parameters)
    for given in range(required, len(parameters) + 1):
        for by_place in range(given + 1):
            names = [each.name for each in parameters[by_place:given]]
            yield [object()] * by_place, {name: object() for name in names}
    for each in parameters[required:]:
        yield [object()] * required, {each.name: object()}


def test_the_methods_that_are_overridden() -> None:
    names = {name for _, name in overrides()}
    assert {"run", "_shutdown", "_stop_workers", "_start_workers", "_exit_barrier"} <= names


@pytest.mark.parametrize(("kind", "name"), list(overrides()))
def test_an_override_takes_every_call_of_the_torch_that_is_installed(kind: type, name: str) -> None:
    own = inspect.signature(vars(kind)[name])
    for positional, named in calls_of(getattr(LocalElasticAgent, name)):
        # Raises a TypeError where it does not.
        own.bind(None, *positional, **named)


@pytest.mark.parametrize("is_linked", [True, False])
def test_torchs_exit_barrier_is_for_nodes_without_links(
    monkeypatch: pytest.MonkeyPatch, *, is_linked: bool
) -> None:
    waited: list[str] = []
    monkeypatch.setattr(LocalElasticAgent, "_exit_barrier", lambda _: waited.append("torch"))
    monkeypatch.setattr(exit_barrier, "_COME_S", 0.1)
    agent: Any = JobAgent.__new__(JobAgent)
    spec: Any = SimpleNamespace(rdzv_handler=None)
    agent._exit_barrier_timeout = 60.0
    agent._meeting = JobMeeting(spec, None, print)
    notes: dict[str, bytes] = {}
    agent._meeting._end_notes = MemoryMailbox(0, 2, notes)
    other = MemoryMailbox(1, 2, notes)
    if is_linked:
        exit_barrier.begin(other)
    other.put(ended_key(1), b"1")
    agent._exit_barrier()
    assert waited == ([] if is_linked else ["torch"])
