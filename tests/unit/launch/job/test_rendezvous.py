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
from relkit.launch.job.rendezvous import keep_alive_as_asked, leave_rendezvous
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
