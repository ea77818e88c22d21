"""Nodes of a static rendezvous meet anew at each restart, and their workers in another store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

from relkit.launch.elastic.static_meetings import StaticMeetings
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from tests.ports import free_port


@dataclass
class Node:
    """A launcher of the job."""

    meetings: StaticMeetings
    handler: Any
    spec: Any
    log: list[str]

    def meet(self) -> Any:  # noqa: ANN401
        return self.handler.next_rendezvous()


Make = Callable[..., list[Node]]


@pytest.fixture
def nodes() -> Iterator[Make]:
    """Makes the launchers of a job."""
    made: list[Node] = []

    def make(count: int, timeout_s: int = 60) -> list[Node]:
        port = free_port()
        for number in range(count):
            handler = StaticTCPRendezvous("127.0.0.1", port, number, count, "job", timeout_s)
            spec = SimpleNamespace(rdzv_handler=handler, master_port=port, max_restarts=3)
            log: list[str] = []
            meetings = StaticMeetings(cast(WorkerSpec, spec), log.append)
            made.append(Node(meetings, handler, spec, log))
        return made

    yield make
    for node in made:
        node.meetings.stop()


def together(nodes: list[Node]) -> list[Any]:
    """All meet at the same time."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(Node.meet, nodes))


def restarts_left(node: Node) -> int:
    """Of an agent that has counted otherwise."""
    return node.meetings.restarts_left(9)


def test_a_single_node_gets_another_store_for_each_attempt_and_says_nothing(nodes: Make) -> None:
    (node,) = nodes(1)
    first = node.meet()
    named = node.spec.master_port
    first.store.set("torchelastic/left", "by a dead worker")
    TCPStore("127.0.0.1", named).set("default_pg/0/0", "address of a dead worker")
    ports = [named]
    for _ in range(2):
        info = node.meet()
        ports.append(node.spec.master_port)
        workers = TCPStore("127.0.0.1", node.spec.master_port)
        assert not workers.check(["default_pg/0/0"])
        assert not info.store.check(["torchelastic/left"])
        assert info.bootstrap_store_info.master_port == node.spec.master_port
    assert len(set(ports)) == len(ports)
    # That of the attempt before is gone, with whoever may still wait in it.
    with pytest.raises(Exception, match=r"(?i)connect|timed out"):
        TCPStore(
            "127.0.0.1", ports[1], None, False, wait_for_workers=False, timeout=timedelta(seconds=1)
        )
    assert node.log == []
    assert node.handler.num_nodes_waiting() == 0
    assert restarts_left(node) == 9


def test_node_0_opens_the_store_when_all_have_come_and_tells_the_others(nodes: Make) -> None:
    all_nodes = nodes(3)
    together(all_nodes)
    named = all_nodes[0].spec.master_port
    for restart in (1, 2):
        infos = together(all_nodes)
        (port,) = {node.spec.master_port for node in all_nodes}
        assert port != named
        infos[1].store.set("own", "1")
        assert infos[2].store.get("own") == b"1"
        line = f"restart {restart}: the workers meet in a new store, on port {port} of 127.0.0.1"
        assert [node.log[-1:] for node in all_nodes] == [[line], [], []]
        # Whoever has asked for the restart: one is used up on all nodes.
        assert [restarts_left(node) for node in all_nodes] == [3 - restart] * 3


def test_where_a_node_cannot_reach_the_new_store_all_meet_in_the_first_one_which_is_cleared(
    nodes: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that lets only the named port through."""
    all_nodes = nodes(3)
    first = together(all_nodes)[0]
    named = all_nodes[0].spec.master_port
    workers = TCPStore("127.0.0.1", named)
    workers.set("default_pg/0/0", "address of a dead worker")
    first.store.set("of/launchers", "1")
    monkeypatch.setattr("relkit.launch.elastic.static_meetings.TCPStore", _ClosedStore)
    together(all_nodes)
    assert [node.spec.master_port for node in all_nodes] == [named] * 3
    (line,) = all_nodes[0].log
    assert line.startswith("restart 1: no new store for the workers at 127.0.0.1 (node 1-2 cannot ")
    is_cleared = hasattr(workers, "list_keys")
    assert ("addresses of dead workers" not in line) == is_cleared
    assert workers.check(["default_pg/0/0"]) != is_cleared
    assert first.store.check(["of/launchers"])


class _ClosedStore:
    """On a port that nobody can connect to."""

    def __init__(self, *_: object, **__: object) -> None:
        self.port = free_port()


def test_a_node_that_meets_again_has_the_others_restart_their_workers(nodes: Make) -> None:
    first, second = nodes(2)
    together([first, second])
    notes: dict[str, bytes] = {}
    for number, node in enumerate((first, second)):
        node.meetings.begin(MemoryMailbox(number, 2, notes))
    assert [node.handler.num_nodes_waiting() for node in (first, second)] == [0, 0]
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(second.meet)
        while not first.handler.num_nodes_waiting():
            assert not waits.done()
        first.meet()
        waits.result()
    for number, node in enumerate((first, second)):
        node.meetings.begin(MemoryMailbox(number, 2))
    assert [node.handler.num_nodes_waiting() for node in (first, second)] == [0, 0]


@pytest.mark.parametrize("is_stuck", [True, False])
def test_a_store_that_does_not_answer_restarts_nothing(nodes: Make, is_stuck: bool) -> None:
    first, second = nodes(2)
    together([first, second])
    asked: list[str] = []

    class Broken(MemoryMailbox):
        def get(self, key: str) -> bytes | None:
            asked.append(key)
            self.is_stuck = is_stuck
            raise ExchangeBroken("gone")

    notes = Broken(1, 2)
    second.meetings.begin(notes)
    assert [second.handler.num_nodes_waiting() for _ in range(3)] == [0, 0, 0]
    assert len(asked) == 1
    notes.is_stuck = False
    second.handler.num_nodes_waiting()
    # One that was only slow is asked again.
    assert len(asked) == (2 if is_stuck else 1)


@pytest.mark.parametrize("ended", [0, 1])
def test_nobody_waits_for_a_node_that_has_ended(nodes: Make, ended: int) -> None:
    both = nodes(2)
    together(both)
    both[ended].meetings.close()
    with pytest.raises(RendezvousClosedError, match=f"^node {ended} has ended$"):
        both[1 - ended].meet()


def test_a_launcher_in_the_place_of_one_that_has_ended_is_waited_for(nodes: Make) -> None:
    first, second = nodes(2)
    together([first, second])
    second.meetings.close()
    handler = StaticTCPRendezvous("127.0.0.1", first.handler.master_port, 1, 2, "job", 60)
    second.spec.rdzv_handler = second.handler = handler
    second.meetings = StaticMeetings(second.spec, second.log.append)
    second.meet()
    together([first, second])
    assert first.spec.master_port == second.spec.master_port


def test_nodes_that_do_not_come_are_named_in_time(nodes: Make) -> None:
    first, second, third = nodes(3, timeout_s=1)
    together([first, second, third])
    with pytest.raises(RendezvousTimeoutError, match="node 1-2 has not come to a restart in time"):
        first.meet()


def test_a_launcher_that_ends_waits_no_longer(nodes: Make) -> None:
    first, second = nodes(2)
    together([first, second])
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(first.meet)
        first.meetings.stop()
        with pytest.raises(RendezvousClosedError, match="this node ends"):
            waits.result()


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "port"])
def test_what_is_no_port_is_refused(nodes: Make, text: str) -> None:
    first, second = nodes(2)
    base, _ = together([first, second])
    base.store.set("relkit/meeting-1/opened", text)
    with pytest.raises(RendezvousConnectionError, match="has named no port"):
        second.meet()


def test_where_no_new_store_can_be_had_workers_meet_in_the_first_one_and_a_line_says_so(
    nodes: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = nodes(1)
    node.meet()
    named = node.spec.master_port

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("no port\nmore")

    monkeypatch.setattr("relkit.launch.elastic.static_meetings.TCPStore", refused)
    node.meet()
    assert node.spec.master_port == named
    assert "no new store for the workers at 127.0.0.1 (no port)" in node.log[0]
