"""torch's executor of operations with quicker looks: what is written is what was read last."""

from __future__ import annotations

import time
from typing import Any

import pytest
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    _Action,
    _RendezvousContext,
)

from relkit.launch.spares.operations import Operation, Operations
from tests.patience import PATIENCE
from tests.unit.launch.job.rendezvous_nodes import handlers

pytestmark = pytest.mark.timeout(60 * PATIENCE)


class Look:
    """An operation that waits until another node has written something, and then writes as well."""

    def __init__(self, other: Any, looks: int) -> None:  # noqa: ANN401
        self.other, self.looks, self.seen = other, looks, list[str]()

    def __call__(self, _by_torch: Operation, context: Any, deadline: float) -> _Action:  # noqa: ANN401
        if time.monotonic() > deadline:
            return _Action.ERROR_TIMEOUT
        self.seen.append(getattr(context.state, "note", ""))
        if context.node in context.state.last_heartbeats:
            return _Action.FINISH
        if len(self.seen) == self.looks:
            with self.other._heartbeat_lock:
                self.other._state_holder.sync()
                self.other._state_holder.state.note = "by the other"
                self.other._state_holder.mark_dirty()
                self.other._state_holder.sync()
        return _Action.KEEP_ALIVE if self.seen[-1] else _Action.SYNC


@pytest.fixture
def server() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def nodes(server: TCPStore) -> list[Any]:
    return handlers(server.port, 2)


def test_what_others_wrote_while_it_waited_is_kept(
    nodes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def torchs_second(seconds: float) -> None:
        raise AssertionError(f"torch waits {seconds} s")

    monkeypatch.setattr(dynamic_rendezvous, "_delay", torchs_second)
    one, other = nodes
    look = Look(other, looks=30)
    operations = Operations(one._op_executor, {str: look}, look_s=0.01)
    operations.run("an operation", time.monotonic() + 20.0 * PATIENCE)
    assert look.seen == [""] * 30 + ["by the other"] * 2
    one._state_holder.sync()
    state = one._state_holder.state
    assert state.note == "by the other"
    assert one._this_node in state.last_heartbeats


def test_an_operation_that_is_not_replaced_is_torchs(nodes: list[Any]) -> None:
    one, _ = nodes
    asked: list[type] = []

    def finish(context: _RendezvousContext, _deadline: float) -> _Action:
        asked.append(type(context))
        return _Action.FINISH

    Operations(one._op_executor, {str: lambda *_: _Action.ERROR_CLOSED}, 0.01).run(finish, 0.0)
    assert asked == [_RendezvousContext]


def test_time_runs_out(nodes: list[Any]) -> None:
    one, other = nodes
    operations = Operations(one._op_executor, {str: Look(other, looks=10**9)}, look_s=0.01)
    with pytest.raises(RendezvousTimeoutError):
        operations.run("an operation", time.monotonic() + 0.1)
