"""Calls that do not return hold nobody up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.launch.job import bounded_calls
from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.rendezvous import leave_rendezvous, limit_waits
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cut() -> Iterator[threading.Event]:
    """Set when the network is repaired."""
    whole = threading.Event()
    yield whole
    whole.set()


def test_a_call_returns_what_the_function_does_or_raises() -> None:
    calls = BoundedCalls("test")
    assert calls.call(max, 3, 4, timeout_s=math.inf) == 4
    with pytest.raises(ZeroDivisionError):
        calls.call(divmod, 3, 0, timeout_s=30)
    assert calls.call(max, 3, 4, timeout_s=30) == 4
    assert calls.stuck_s() == 0.0


def test_calls_behind_one_that_hangs_fail_at_once(cut: threading.Event) -> None:
    calls = BoundedCalls("test")
    made: list[int] = []
    with pytest.raises(NoAnswer):
        calls.call(cut.wait, timeout_s=0.1)
    # Later ones are never made: their callers have gone on.
    began_s = time.monotonic()
    for _ in range(100):
        with pytest.raises(NoAnswer):
            calls.call(made.append, 1, timeout_s=0.1)
    assert time.monotonic() - began_s < 5
    assert calls.stuck_s() > 0.1
    cut.set()
    eventually(lambda: calls.stuck_s() == 0.0, "the call does not return")
    calls.call(made.append, 2, timeout_s=30)
    assert made == [2]


def test_a_call_that_was_given_up_before_its_turn_is_not_made(cut: threading.Event) -> None:
    calls = BoundedCalls("test")
    made: list[int] = []
    first = threading.Thread(target=calls.call, args=(cut.wait,), kwargs={"timeout_s": math.inf})
    first.start()
    eventually(lambda: calls.stuck_s() > 0, "the first call is not made")
    with pytest.raises(NoAnswer):
        calls.call(made.append, 1, timeout_s=0.3)
    cut.set()
    first.join()
    calls.call(made.append, 2, timeout_s=30)
    assert made == [2]


def test_the_thread_ends_when_there_is_nothing_to_do() -> None:
    calls = BoundedCalls("test-goes")
    for _ in range(2):
        calls.call(max, 3, 4, timeout_s=30)
        assert _threads("test-goes") == 1
        eventually(lambda: _threads("test-goes") == 0, "the thread stays")


def test_a_call_whose_caller_is_interrupted_before_its_turn_is_not_made(
    cut: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = BoundedCalls("test")
    with pytest.raises(NoAnswer):
        calls.call(cut.wait, timeout_s=0.1)
    made: list[int] = []

    def interrupted(_future: object, _timeout_s: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bounded_calls, "is_done_within", interrupted)
        with pytest.raises(KeyboardInterrupt):
            calls.call(made.append, 1, timeout_s=math.inf)
    cut.set()
    calls.call(made.append, 2, timeout_s=math.inf)
    assert made == [2]


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


class Handler:
    """Stands in for torch's; its store answers once the network is repaired."""

    def __init__(self, cut: threading.Event) -> None:
        self._cut = cut

    def num_nodes_waiting(self) -> int:
        self._cut.wait()
        return 2

    def shutdown(self) -> bool:
        self._cut.wait()
        return True

    def _stop_heartbeats(self) -> None:
        self._cut.wait()


def test_a_rendezvous_whose_store_is_cut_off(
    cut: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relkit.launch.job.rendezvous._LIMIT_S", 0.1)
    handler: Any = Handler(cut)
    log: list[str] = []
    calls = BoundedCalls("test")
    limit_waits(handler, calls, log.append)
    assert handler.num_nodes_waiting() == 0
    assert not handler.shutdown()
    assert log == ["the rendezvous store does not answer: the other nodes are not notified"]
    with pytest.raises(RendezvousError, match="does not answer"):
        leave_rendezvous(handler, calls)
    cut.set()
    eventually(lambda: handler.num_nodes_waiting() == 2, "no answer after the cut")
    assert handler.shutdown()
    leave_rendezvous(handler, calls)
