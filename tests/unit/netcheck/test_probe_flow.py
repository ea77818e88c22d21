"""The streams of one flow: what is counted, what breaks, what stays silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from relkit.net.handshake import Label
from relkit.netcheck.measure.probes.base import ProbeFailed
from relkit.netcheck.measure.probes.tcp_flow import (
    Flow,
    Received,
    arrived_bytes,
    labels,
)
from relkit.netcheck.measure.probes.tcp_wire import percentile
from relkit.netcheck.model import Failure
from tests.waiting import eventually

Wires = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def wires() -> Iterator[Wires]:
    made = [socket.socketpair() for _ in range(2)]
    yield made
    for ends in made:
        for end in ends:
            end.close()


def test_bytes_are_counted_between_two_looks(wires: Wires) -> None:
    with Flow(4096) as sending, Flow(1) as receiving:
        for here, there in wires:
            sending.send_on(here)
            receiving.receive_on(there)
        receiving.start()
        sending.start()
        got = receiving.window(0.05)
    assert got.size_bytes > 0
    assert got.silent == 0
    assert got.gbps == pytest.approx(got.size_bytes * 8 / got.seconds / 1e9)


def test_what_arrived_before_the_window_is_not_in_it_though_it_is_read_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The thread that reads has to wait, as for imports of a launcher.
    before, later = b"x" * 20_000, b"y" * 5000
    may_read, first = threading.Event(), threading.Event()

    def receive(flow: Flow, index: int) -> None:
        stream = flow._receivers[index]
        flow._counts[index] += len(stream.recv(1))
        flow._begun.set()
        may_read.wait(60)
        flow._counts[index] += len(stream.recv(len(before) + len(later)))

    look = Flow._look

    def send_then_look(flow: Flow) -> tuple[int, float]:
        seen = look(flow)
        if not first.is_set():
            first.set()
            sender.sendall(later)
            eventually(lambda: arrived_bytes(receiver) == len(before) + len(later), "it arrived")
            may_read.set()
        return seen

    monkeypatch.setattr(Flow, "_receive", receive)
    monkeypatch.setattr(Flow, "_look", send_then_look)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    with sender, Flow(1) as flow:
        flow.receive_on(receiver)
        sender.sendall(before)
        eventually(lambda: arrived_bytes(receiver) == len(before), "it arrived")
        flow.start()
        got = flow.window(0.05)
    assert (got.size_bytes, got.silent) == (len(later), 0)


def test_only_of_tcp_it_is_known_what_has_arrived(wires: Wires) -> None:
    assert arrived_bytes(wires[0][0]) is None


def test_a_stream_on_which_nothing_comes_is_counted(wires: Wires) -> None:
    with Flow(4096) as sending, Flow(1) as receiving:
        sending.send_on(wires[0][0])
        for _, there in wires:
            receiving.receive_on(there)
        receiving.start()
        sending.start()
        assert receiving.window(0.05).silent == 1


def test_connected_but_no_data_at_all(wires: Wires) -> None:
    with Flow(1) as receiving:
        receiving.receive_on(wires[0][1])
        receiving.start()
        with pytest.raises(ProbeFailed, match="MTU") as caught:
            receiving.window(0.05)
    assert caught.value.failure is Failure.DEADLINE


def test_a_stream_that_ends_early_ends_the_window(wires: Wires) -> None:
    with Flow(1) as receiving:
        for _, there in wires:
            receiving.receive_on(there)
        receiving.start()
        wires[0][0].close()
        with pytest.raises(ProbeFailed, match="broke") as caught:
            receiving.window(100)
    assert caught.value.failure is Failure.RESET


def test_leaving_a_flow_ends_its_threads_and_streams(wires: Wires) -> None:
    before = threading.active_count()
    with Flow(1 << 20) as sending:
        sending.send_on(wires[0][0])
        sending.start()
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert wires[0][0].fileno() == -1


def test_labels_of_both_directions_differ() -> None:
    away, towards = labels(3, 2, "both")
    assert away == (Label(3, 0), Label(3, 1))
    assert towards == (Label(3, 2), Label(3, 3))
    assert labels(3, 2, "out") == (away, ())
    assert labels(3, 2, "in") == ((), towards)


def test_percentiles() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1.0], 0.99) == 1
    assert Received(0, 0).gbps == 0
