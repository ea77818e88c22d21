"""Calls that do not return hold nobody up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.rendezvous import bound, leave_rendezvous
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cut() -> Iterator[threading.Event]:
    """Set when the network is whole again."""
    whole = threading.Event()
    yield whole
    whole.set()


def test_it_gives_what_the_function_gives_or_raises() -> None:
    calls = BoundedCalls("test")
    assert calls.call(max, 3, 4, timeout_s=math.inf) == 4
    with pytest.raises(ZeroDivisionError):
        calls.call(divmod, 3, 0, timeout_s=30)
    assert calls.call(max, 3, 4, timeout_s=30) == 4
    assert calls.stuck_s() == 0.0


def test_behind_a_call_that_hangs_nobody_waits_until_it_returns(cut: threading.Event) -> None:
    calls = BoundedCalls("test")
    made: list[int] = []
    with pytest.raises(NoAnswer):
        calls.call(cut.wait, timeout_s=0.1)
    # Later ones are not made at all: who asked for them has gone on.
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


def test_its_thread_goes_when_there_is_nothing_to_do() -> None:
    calls = BoundedCalls("test-goes")
    for _ in range(2):
        calls.call(max, 3, 4, timeout_s=30)
        assert _threads("test-goes") == 1
        eventually(lambda: _threads("test-goes") == 0, "the thread stays")


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


class Handler:
    """torch's, with a store that answers when the network is whole."""

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
    bound(handler, log.append)
    assert handler.num_nodes_waiting() == 0
    assert not handler.shutdown()
    assert log == ["the rendezvous store does not answer: the other nodes notice by themselves"]
    with pytest.raises(RendezvousError, match="does not answer"):
        leave_rendezvous(handler)
    cut.set()
    eventually(lambda: handler.num_nodes_waiting() == 2, "no answer after the cut")
    assert handler.shutdown()
    leave_rendezvous(handler)
