"""The controller's server over real sockets: only authenticated, honest ranks are served."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from relkit.net import handshake
from relkit.net.gate import MAX_PENDING
from relkit.ttp.actions import Limits
from relkit.ttp.controller import Controller
from relkit.ttp.link import Endpoint, Link, LinkEnded, connect, parse_endpoint
from relkit.ttp.messages import (
    Commit,
    Committed,
    Done,
    Exit,
    FaultNotice,
    Finished,
    Heartbeat,
    Hello,
    Message,
    Note,
    Save,
    Saved,
    State,
    Stop,
    encode,
)
from relkit.ttp.plan import Survivor
from relkit.ttp.replicas import replica_map
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVED
from relkit.ttp.server import Node, Server
from tests.patience import PATIENCE

SECRET = b"s" * 32
MAPS = (replica_map("tp0 pp0", range(2)),)
# Ranks here say nothing on their own: silence is not what is tested.
PATIENT = Limits(missed_heartbeats=1000)


def make(
    size: int = 2, pids: dict[int, int] | None = None, address: str = "127.0.0.1"
) -> tuple[Server, list[str]]:
    said: list[str] = []
    node = Node(pids or {}, lambda _: "was killed by SIGKILL", said.append)
    controller = Controller(size, PATIENT)
    server = Server(controller, secret=SECRET, attempt=3, address=address, node=node)
    server.start()
    return server, said


@pytest.fixture
def served() -> Iterator[tuple[Server, list[str]]]:
    server, said = make()
    yield server, said
    server.close()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s * PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.005)


# Held here: a link that nobody refers to is closed by Python, which is the end of its rank.
OPEN: list[Link | socket.socket] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for each in OPEN:
        each.close()
    OPEN.clear()


def link_to(server: Server, secret: bytes = SECRET, attempt: int = 3) -> Link:
    link = connect(server.endpoint, secret, attempt, 5.0)
    OPEN.append(link)
    return link


def read_to_the_end(link: Link) -> None:
    while True:
        link.receive(5.0)


def rank(server: Server, number: int, step: int = 5) -> Link:
    link = link_to(server)
    link.send(Hello(number, 2, 100 + number, "h", step, MAPS))
    return link


def next_of(link: Link, kind: type[Message]) -> Message:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        message = link.receive(0.5)
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__} came")


def phase(server: Server) -> str:
    return str(server.status()["phase"])


def test_ranks_are_served_over_ipv6() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server, _ = make(address="::1")
    try:
        assert server.endpoint.host == "::1"
        for number in range(2):
            rank(server, number)
        until(lambda: phase(server) == "normal")
    finally:
        server.close()


def test_a_rank_is_lost_and_the_other_saves(served: tuple[Server, list[str]]) -> None:
    server, _ = served
    links = [rank(server, number) for number in range(2)]
    until(lambda: phase(server) == "normal")
    links[0].close()
    fault = next_of(links[1], FaultNotice)
    assert isinstance(fault, FaultNotice)
    assert fault.dead == (0,)
    links[1].send(State(1, fault.epoch, Survivor(1, 5)))
    request = next_of(links[1], Save)
    assert isinstance(request, Save)
    assert (request.plan.step, request.plan.ranks) == (5, (1,))
    links[1].send(Saved(1, fault.epoch, {"a": ("00", 1)}))
    next_of(links[1], Commit)
    links[1].send(Committed(1, fault.epoch, "iter_0000005"))
    assert next_of(links[1], Exit) == Exit(EXIT_SAVED, "step 5 was saved")
    assert server.over.wait(5)
    assert server.outcome is not None
    assert server.outcome.reason == "rank 0 lost its link to the controller"


def test_the_end_of_a_process_is_seen_though_its_link_stays_open() -> None:
    """A child that it has forked holds the link's descriptor: there is no end of file."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server, _ = make(pids={0: child.pid})
    try:
        links = [rank(server, number) for number in range(2)]
        server.watch({0: child.pid})
        until(lambda: phase(server) == "normal")
        child.kill()
        fault = next_of(links[1], FaultNotice)
        assert isinstance(fault, FaultNotice)
        assert fault.reason == f"rank 0 (pid {child.pid}) was killed by SIGKILL"
    finally:
        server.close()
        child.communicate()


def test_all_finish_and_a_program_may_train_again(served: tuple[Server, list[str]]) -> None:
    server, said = served
    for _ in range(2):
        links = [rank(server, number) for number in range(2)]
        until(lambda: phase(server) == "normal")
        links[0].send(Done(0))
        assert links[0].receive(0.1) is None
        links[1].send(Done(1))
        for link in links:
            next_of(link, Finished)
            link.close()
        assert not server.busy
    assert said == []


def test_a_rank_that_has_finished_is_still_a_holder(served: tuple[Server, list[str]]) -> None:
    server, _ = served
    links = [rank(server, number) for number in range(2)]
    until(lambda: phase(server) == "normal")
    links[0].send(Done(0))
    until(lambda: bool(server._controller.members.done))
    links[1].close()
    fault = next_of(links[0], FaultNotice)
    assert isinstance(fault, FaultNotice)
    links[0].send(State(0, fault.epoch, Survivor(0, 9)))
    request = next_of(links[0], Save)
    assert isinstance(request, Save)
    assert request.plan.step == 9


def test_notes_go_to_the_other_members(served: tuple[Server, list[str]]) -> None:
    server, _ = served
    # Each holds what the other does not, so that both take part.
    maps = [replica_map(f"tp{number} pp0", [number], copies=1) for number in range(2)]
    links = [link_to(server) for _ in range(2)]
    for number, link in enumerate(links):
        link.send(Hello(number, 2, 1, "h", 5, (maps[number],)))
    until(lambda: phase(server) == "normal")
    server.hung("the job hangs")
    for number, link in enumerate(links):
        fault = next_of(link, FaultNotice)
        assert isinstance(fault, FaultNotice)
        link.send(State(number, fault.epoch, Survivor(number, 5)))
    for link in links:
        next_of(link, Save)
    links[0].send(Note(0, 0, "old", "00"))
    links[0].send(Note(0, 1, "0/0", "abcd"))
    assert next_of(links[1], Note) == Note(0, 1, "0/0", "abcd")


def test_another_launcher_may_ask_for_the_end(served: tuple[Server, list[str]]) -> None:
    server, _ = served
    rank(server, 0)
    asking = link_to(server)
    asking.send(Stop("the launcher of node 1 got SIGTERM"))
    assert server.over.wait(5)
    assert server.outcome is not None
    assert server.outcome.code == EXIT_REFUSED
    assert "SIGTERM; not every rank had begun" in server.outcome.sentence


@pytest.mark.parametrize(("secret", "attempt"), [(b"x" * 32, 3), (SECRET, 2)])
def test_a_stranger_is_told_nothing(
    served: tuple[Server, list[str]], secret: bytes, attempt: int
) -> None:
    server, said = served
    with pytest.raises(LinkEnded):
        link_to(server, secret, attempt)
    until(lambda: server.unauthenticated == 1)
    assert said == []


def test_who_listens_must_know_the_secret_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        child = os.fork()
        if child == 0:
            peer, _ = listener.accept()
            peer.sendall(handshake.greeting())
            peer.recv(1000)
            peer.sendall(bytes(handshake.CONFIRMATION_BYTES))
            peer.recv(1)
            os._exit(0)
        with pytest.raises(LinkEnded, match="do not share the job's secret"):
            connect(Endpoint("127.0.0.1", port), SECRET, 3, 5.0)
        os.waitpid(child, 0)


def raw(server: Server) -> socket.socket:
    sock = socket.create_connection((server.endpoint.host, server.endpoint.port), 5)
    OPEN.append(sock)
    return sock


def is_reset(sock: socket.socket) -> bool:
    """Wait until the other end closes, whatever it sends before; whether it did so by a reset."""
    sock.settimeout(10 * PATIENCE)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return False


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n" * 20, bytes(handshake.ANSWER_BYTES), b"\xff" * 100_000],
    ids=["browser", "zeros", "flood"],
)
def test_garbage_is_dropped_and_ranks_are_served(
    served: tuple[Server, list[str]], data: bytes
) -> None:
    server, _ = served
    link = rank(server, 0)
    with raw(server) as sock:
        sock.sendall(data)
        # A wrong answer is final; the kernel makes a reset of it where bytes are left unread.
        assert is_reset(sock) is (len(data) > handshake.ANSWER_BYTES)
    assert server.unauthenticated == 1
    rank(server, 1)
    until(lambda: phase(server) == "normal")
    link.send(Heartbeat(0, 6, "forward", 0.1))
    until(lambda: is_at(server, 6))


def _ranks(server: Server) -> list[object]:
    ranks = server.status()["ranks"]
    assert isinstance(ranks, list)
    return ranks


def test_who_says_nothing_is_dropped_in_time(
    served: tuple[Server, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = served
    monkeypatch.setattr("relkit.net.door.HANDSHAKE_S", 3600.0)
    with raw(server) as slow, raw(server) as drip:
        drip.sendall(b"x")
        links = [rank(server, number) for number in range(2)]
        until(lambda: phase(server) == "normal")
        assert (server._gate.pending, server.unauthenticated) == (2, 0)
        monkeypatch.setattr("relkit.net.door.HANDSHAKE_S", 0.0)
        # The server has made a whole turn in between once it knows of the second step.
        for step in (6, 7):
            links[0].send(Heartbeat(0, step, "forward", 0.1))
            until(partial(is_at, server, step))
        assert (server._gate.pending, server.unauthenticated) == (0, 2)
        assert is_reset(slow)
        assert is_reset(drip)


def is_at(server: Server, step: int) -> bool:
    return {"rank": 0, "step": step, "phase": "forward"} in _ranks(server)


def test_silent_connections_do_not_keep_ranks_out(served: tuple[Server, list[str]]) -> None:
    server, _ = served
    idle = [raw(server) for _ in range(MAX_PENDING + 100)]
    for number in range(2):
        rank(server, number)
    until(lambda: phase(server) == "normal")
    assert server._gate.pending <= MAX_PENDING
    # The oldest were reset, so that an honest one knows that it may try again.
    assert len(idle[0].recv(4096)) == handshake.GREETING_BYTES
    with pytest.raises(ConnectionResetError):
        idle[0].recv(4096)


@pytest.mark.parametrize(
    "lines",
    [
        b"{}\n",
        b"not json\n",
        b"\x00" * 10 + b"\n",
        encode(Heartbeat(0, 9, step_s=math.nan)),
        encode(Heartbeat(1, 9)),
        encode(Hello(1, 2, 1, "h", 0, MAPS)),
        encode(Exit(0, "go away")),
    ],
    ids=["empty", "words", "zeros", "no-number", "another's", "second-hello", "order"],
)
def test_a_rank_that_lies_is_dropped(served: tuple[Server, list[str]], lines: bytes) -> None:
    server, said = served
    link = rank(server, 0)
    rank(server, 1)
    until(lambda: phase(server) == "normal")
    link._socket.sendall(lines)
    with pytest.raises(LinkEnded):
        read_to_the_end(link)
    assert said
    assert said[0].startswith("ttp: rank 0:")


@pytest.mark.parametrize("hello", [(2, 2), (-1, 2), (0, 3), (0, 2)], ids=str)
def test_a_hello_that_cannot_be(served: tuple[Server, list[str]], hello: tuple[int, int]) -> None:
    server, _ = served
    rank(server, 0)
    until(lambda: len(_ranks(server)) == 1)
    link = link_to(server)
    link.send(Hello(hello[0], hello[1], 1, "h", 0, MAPS))
    with pytest.raises(LinkEnded):
        read_to_the_end(link)
    assert len(_ranks(server)) == 1


def test_half_a_line_is_waited_for(served: tuple[Server, list[str]]) -> None:
    server, _ = served
    link = rank(server, 0)
    line = encode(Heartbeat(0, 7, "update"))
    for byte in range(len(line)):
        link._socket.sendall(line[byte : byte + 1])
    until(lambda: {"rank": 0, "step": 7, "phase": "update"} in _ranks(server))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LinkEnded, match="no controller at"):
        connect(Endpoint("127.0.0.1", port), SECRET, 0, 2.0)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:70000", "host:x", ":"])
def test_endpoints_that_are_none(text: str) -> None:
    with pytest.raises(LinkEnded):
        parse_endpoint(text)


@pytest.mark.parametrize("text", ["10.0.0.1:8000", "[fe80::1]:8000", "host-3:1"])
def test_endpoints(text: str) -> None:
    assert str(parse_endpoint(text)) == text
