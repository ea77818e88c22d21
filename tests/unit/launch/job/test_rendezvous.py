"""A node leaves a real rendezvous of torch's, and the others meet again."""

from __future__ import annotations

import time
from typing import Any

import pytest
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.rendezvous import keep_alive_as_asked, leave_rendezvous, limit_waits
from tests.unit.launch.job.rendezvous_nodes import handlers, meet


def test_the_others_meet_without_waiting_for_heartbeats_of_one_that_left() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    *others, leaving = nodes = handlers(store.port, 3)
    try:
        assert meet(nodes) == {(0, 3), (1, 3), (2, 3)}
        leave_rendezvous(leaving, BoundedCalls("test"))
        began_s = time.monotonic()
        assert meet(others) == {(0, 2), (1, 2)}
        # Three missing heartbeats are 15 s; the last call is 1 s.
        assert time.monotonic() - began_s < 12
        assert not leaving.is_closed()
    finally:
        for node in nodes:
            node._stop_heartbeats()


def test_a_rendezvous_without_a_list_of_members_is_left_alone() -> None:
    class Static:
        """As --node-rank makes one: a store, and nothing to leave."""

    leave_rendezvous(Static(), BoundedCalls("test"))  # type: ignore[arg-type]


def test_a_list_that_cannot_be_changed_is_an_error() -> None:
    class Broken(C10dRendezvousBackend):
        def get_state(self) -> tuple[bytes, object] | None:
            raise RendezvousConnectionError("the store is gone")

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    handler: RendezvousHandler = DynamicRendezvousHandler.from_backend(
        "a job", store, Broken(store, "a job"), 1, 1, local_addr="127.0.0.1"
    )
    with pytest.raises(RendezvousConnectionError):
        leave_rendezvous(handler, BoundedCalls("test"))


@pytest.mark.parametrize(
    ("asked", "interval_s", "attempts"),
    [({}, 5, 3), ({"keep_alive_interval": "2"}, 2, 3), ({"keep_alive_max_attempt": "60"}, 5, 60)],
)
def test_heartbeats_are_sent_as_asked(
    asked: dict[str, str], interval_s: int, attempts: int
) -> None:
    """Also by a torch that does not read it; the handler here has not been told, either."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    handler: Any = handlers(store.port, 2)[0]
    parameters = RendezvousParameters("c10d", "127.0.0.1", "a job", 1, 1, **asked)
    keep_alive_as_asked(handler, parameters)
    for settings in (handler.settings, handler._state_holder._settings):
        assert settings.keep_alive_interval.total_seconds() == interval_s
        assert settings.keep_alive_max_attempt == attempts


class Gone:
    """A handler whose store has gone."""

    def __init__(self) -> None:
        self.asked, self.beats = 0, True

    def num_nodes_waiting(self) -> int:
        self.asked += 1
        raise RendezvousConnectionError("the store is gone")

    def shutdown(self) -> bool:
        return True

    def _stop_heartbeats(self) -> None:
        self.beats = False


def test_the_end_of_a_store_outside_of_the_job_is_said_once_and_ends_nothing() -> None:
    handler, log = Gone(), list[str]()
    limit_waits(handler, BoundedCalls("test"), log.append, lambda: True)  # type: ignore[arg-type]
    assert [handler.num_nodes_waiting() for _ in range(3)] == [0, 0, 0]
    # torch prints a page at each call, and at each heartbeat.
    assert not handler.beats
    assert len(log) == 1
    assert "the job goes on" in log[0]


def test_the_end_of_a_store_that_a_launcher_hosts_or_may_host_is_the_jobs() -> None:
    handler, log = Gone(), list[str]()
    limit_waits(handler, BoundedCalls("test"), log.append)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(RendezvousConnectionError):
            handler.num_nodes_waiting()
    assert log == []
