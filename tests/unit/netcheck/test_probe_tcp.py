"""The tcp probe over real loopback sockets: results, unauthenticated peers, failures."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from relkit.errors import UsageProblem
from relkit.net import handshake
from relkit.net.dial import dial
from relkit.net.handshake import CONTROL, Label
from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Measured, Plan, ProbeFailed
from relkit.netcheck.measure.probes.tcp import TcpProbe, _far_result
from relkit.netcheck.model import Failure
from tests.patience import PATIENCE

SECRET = bytes(range(32))
ADDRESS = "127.0.0.1"
QUICK = {"streams": 2, "duration_s": 0.1, "timeout_s": 20.0}


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(5)
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = Listener(ADDRESS, 3, SECRET, lifetime_s=30)
    yield opened
    opened.close()


def plan_for(port: int, **changes: object) -> Plan:
    plan = Plan(3, SECRET, "here", "there", ADDRESS, port)
    return replace(plan, **{**QUICK, **changes})  # type: ignore[arg-type]


def wait_until(true: Callable[[], bool], timeout_s: float = 10) -> None:
    end = time.monotonic() + timeout_s * PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def measure(listener: Listener, **changes: object) -> tuple[Measured, list[ProbeFailed]]:
    """Both ends of a probe in this process."""
    plan = plan_for(listener.port, **changes)
    failures: list[ProbeFailed] = []

    def serve() -> None:
        try:
            TcpProbe().accept(replace(plan, node="there", peer="here"), listener)
        except ProbeFailed as error:
            failures.append(error)

    server = threading.Thread(target=serve)
    server.start()
    try:
        return TcpProbe().connect(plan), failures
    finally:
        server.join(30)


def test_figures_in_both_directions(listener: Listener) -> None:
    measured, failures = measure(listener, sizes=(4096, 1 << 18))
    out, back = measured.edges
    assert not failures
    assert (out.source, out.target, back.source, back.target) == ("here", "there", "there", "here")
    for edge in measured.edges:
        assert (edge.failure, edge.detail, edge.round) == (Failure.NONE, "", 3)
        assert edge.size_bytes == 1 << 18
        assert edge.bandwidth_gbps > 0.1
        assert edge.both_ways_gbps > 0.05
        assert 0 < edge.latency_p50_us <= edge.latency_p99_us
        assert [row.size_bytes for row in edge.by_size] == [4096, 1 << 18]
        assert edge.by_size[-1].bandwidth_gbps == edge.bandwidth_gbps
        assert all(0 < row.latency_p50_us <= row.latency_p99_us for row in edge.by_size)
        assert all(row.bandwidth_gbps > 0 for row in edge.by_size)
    assert listener.unauthenticated == 0


def test_both_ways_can_be_left_out(listener: Listener) -> None:
    measured, _ = measure(listener, both_ways=False, streams=1)
    assert all(edge.bandwidth_gbps > 0 for edge in measured.edges)
    assert all(edge.both_ways_gbps == 0 for edge in measured.edges)
    assert not any(edge.by_size for edge in measured.edges), "one size says nothing by size"


def test_the_secret_is_never_on_the_wire() -> None:
    greeted = handshake.greeting()
    answered = handshake.answer(SECRET, 3, greeted, Label(2, 1))
    checked = handshake.check_answer(SECRET, 3, greeted, answered)
    assert checked is not None
    label, own = checked
    assert label == Label(2, 1)
    assert handshake.check_confirmation(SECRET, 3, greeted, answered, own)
    assert SECRET not in greeted + answered + own


def test_an_answer_is_good_for_one_greeting_one_round_and_one_end() -> None:
    greeted = handshake.greeting()
    answered = handshake.answer(SECRET, 3, greeted, CONTROL)
    assert handshake.check_answer(SECRET, 3, handshake.greeting(), answered) is None
    assert handshake.check_answer(SECRET, 4, greeted, answered) is None
    assert handshake.check_answer(b"another secret, 16+", 3, greeted, answered) is None
    # Played back as the accepting end's proof, the connecting end's is worth nothing.
    mac = answered[-handshake.CONFIRMATION_BYTES :]
    assert not handshake.check_confirmation(SECRET, 3, greeted, answered, mac)


def test_unauthenticated_connections_are_closed_and_counted(listener: Listener) -> None:
    silent = socket.create_connection((ADDRESS, listener.port))
    scanner = socket.create_connection((ADDRESS, listener.port))
    scanner.sendall(b"GET / HTTP/1.0\r\n\r\n".ljust(handshake.ANSWER_BYTES, b"x"))
    scanner.settimeout(10)
    assert len(scanner.recv(100)) == handshake.GREETING_BYTES
    assert scanner.recv(100) == b""
    with pytest.raises(PermissionError):
        dial(ADDRESS, listener.port, 3, b"not the run's secret", CONTROL, 10)
    with pytest.raises(PermissionError):
        dial(ADDRESS, listener.port, 4, SECRET, CONTROL, 10)
    assert listener.unauthenticated == 3
    measured, failures = measure(listener)
    assert not failures
    assert measured.edges[0].failure is Failure.NONE
    # Whoever never said a word counts when the round is over.
    listener.close()
    assert listener.unauthenticated == 4
    silent.close()
    scanner.close()


def test_many_silent_connections_do_not_use_up_the_listener(listener: Listener) -> None:
    crowd = [socket.create_connection((ADDRESS, listener.port)) for _ in range(80)]
    dial(ADDRESS, listener.port, 3, SECRET, CONTROL, 10).close()
    assert listener.unauthenticated >= 16
    for one in crowd:
        one.close()


def test_a_wrong_secret_is_an_edge_that_says_so(listener: Listener) -> None:
    plan = plan_for(listener.port, secret=b"not the run's secret")
    edges = TcpProbe().connect(plan).edges
    assert {edge.failure for edge in edges} == {Failure.PROBE_ERROR}
    assert "handshake" in edges[0].detail


def test_something_else_on_the_port() -> None:
    def greet(other: socket.socket) -> None:
        with other.accept()[0] as caller:
            caller.sendall(b"220 mail\r\n" * 9)

    with socket.create_server((ADDRESS, 0)) as other:
        thread = threading.Thread(target=greet, args=(other,))
        thread.start()
        edges = TcpProbe().connect(plan_for(other.getsockname()[1])).edges
        thread.join(5)
    assert edges[0].failure is Failure.PROBE_ERROR
    assert "other than relkit" in edges[0].detail


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind((ADDRESS, 0))
        edges = TcpProbe().connect(plan_for(bound.getsockname()[1])).edges
    assert {edge.failure for edge in edges} == {Failure.REFUSED}


def test_a_peer_that_connects_and_then_says_nothing() -> None:
    with socket.create_server((ADDRESS, 0)) as mute:
        edges = TcpProbe().connect(plan_for(mute.getsockname()[1], timeout_s=0.3)).edges
    assert {edge.failure for edge in edges} == {Failure.NO_ANSWER}


def test_an_accepting_end_that_is_not_served_runs_out_of_time(listener: Listener) -> None:
    # The listener answers the proof, but nobody serves the round.
    began = time.monotonic()
    edges = TcpProbe().connect(plan_for(listener.port, timeout_s=0.5)).edges
    assert {edge.failure for edge in edges} == {Failure.NO_ANSWER}
    assert time.monotonic() - began < 10


def test_a_round_that_ends_in_the_middle_is_a_reset(listener: Listener) -> None:
    plan = plan_for(listener.port, duration_s=60.0, timeout_s=100.0)
    failures: list[ProbeFailed] = []

    def serve() -> None:
        try:
            TcpProbe().accept(plan, listener)
        except ProbeFailed as error:
            failures.append(error)

    found: list[Measured] = []
    server = threading.Thread(target=serve)
    client = threading.Thread(target=lambda: found.append(TcpProbe().connect(plan)))
    server.start()
    client.start()
    flowing = "relkit-flow"
    wait_until(lambda: any(thread.name == flowing for thread in threading.enumerate()))
    listener.close()
    client.join(30)
    server.join(30)
    assert found[0].edges[0].failure is Failure.RESET


def test_the_listener_ends_with_its_lifetime() -> None:
    short = Listener(ADDRESS, 0, SECRET, lifetime_s=0.05)
    with pytest.raises(TimeoutError):
        short.take(CONTROL, 10)
    with pytest.raises(ConnectionRefusedError):
        dial(ADDRESS, short.port, 0, SECRET, CONTROL, 5)
    short.close()


def test_a_listener_may_live_for_years() -> None:
    years = Listener(ADDRESS, 0, SECRET, lifetime_s=10 * 365 * 86400.0)
    with dial(ADDRESS, years.port, 0, SECRET, CONTROL, 5 * PATIENCE):
        years.take(CONTROL, 5 * PATIENCE).close()
    years.close()


def test_a_listener_binds_one_address_only() -> None:
    for wildcard in ("0.0.0.0", "::"):  # noqa: S104  what must be refused
        with pytest.raises(OSError, match="one address"):
            Listener(wildcard, 0, SECRET, lifetime_s=1)
    with pytest.raises(OSError, match="assign"):
        Listener("203.0.113.9", 0, SECRET, lifetime_s=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": b"short"},
        {"sizes": ()},
        {"sizes": (0,)},
        {"sizes": (1 << 40,)},
        {"streams": 0},
        {"streams": 1000},
        {"duration_s": 0.0},
        {"timeout_s": 0.0},
    ],
)
def test_plans_out_of_bounds(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageProblem):
        plan_for(1, **wrong)


@pytest.mark.parametrize(
    "line",
    [
        b'{"do":"flow","phase":1,"size":1e99,"streams":1,"ways":"out","duration_s":1}\n',
        b'{"do":"flow","phase":1,"size":1024,"streams":99999,"ways":"out","duration_s":1}\n',
        b'{"do":"flow","phase":1,"size":1024,"streams":1,"ways":"up","duration_s":1}\n',
        b'{"do":"flow","phase":0,"size":1024,"streams":1,"ways":"out","duration_s":1}\n',
        b'{"do":"flow"}\n',
        b"[1]\n",
        b"garbage\n",
        b"x" * (1 << 17),
        b"half a line",
    ],
)
def test_orders_that_make_no_sense_end_the_accepting_end(listener: Listener, line: bytes) -> None:
    control = dial(ADDRESS, listener.port, 3, SECRET, CONTROL, 10)
    control.sendall(line)
    control.shutdown(socket.SHUT_WR)
    with pytest.raises(ProbeFailed):
        TcpProbe().accept(plan_for(listener.port), listener)
    control.close()


def test_many_sizes_in_next_to_no_time_are_all_measured(listener: Listener) -> None:
    sizes = (1024, 4096, 65536, 1 << 20)
    plan = plan_for(listener.port, sizes=sizes, duration_s=0.05, streams=1, both_ways=False)
    server = threading.Thread(target=TcpProbe().accept, args=(plan, listener))
    server.start()
    found = TcpProbe().connect(plan)
    server.join(30)
    assert not any(edge.failure for edge in found.edges), found.edges
    for edge in found.edges:
        assert [row.size_bytes for row in edge.by_size] == list(sizes)


@pytest.mark.parametrize(
    "answer",
    [{"bytes": float("nan"), "seconds": 1.0, "silent": 0}, {"bytes": 5, "seconds": float("nan")},
     {"bytes": 5, "seconds": 0.0}, {"bytes": None, "seconds": 1.0}, {"seconds": 1.0}],
)  # fmt: skip
def test_a_far_result_that_is_no_number_is_an_error(answer: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no result"):
        _far_result(answer)
