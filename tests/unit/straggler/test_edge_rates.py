"""Slow edges and interfaces, by the kernel's counters of connections."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from relkit.straggler.collect import socket_rates
from relkit.straggler.collect.socket_rates import Connection, KernelConnections, SocketRates
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.model import Cause, Subject, Verdict
from relkit.straggler.score.edge_rates import EdgeScorer, by_host

HOSTS = ("n0", "n1", "n2", "n3")
RING = tuple(zip(HOSTS, (*HOSTS[1:], HOSTS[0]), strict=True))
LOOK_S = 0.5
MIB = 1 << 20
Edge = tuple[str, str]


def _ring(slow: set[tuple[str, str]], rng: np.random.Generator) -> list[EdgeTraffic]:
    """All edges of a ring carry as much; who waits for the slow one is not busy meanwhile."""
    rate = 1.0 if slow else 4.0
    return [
        EdgeTraffic(
            *edge,
            acked_bytes=int(rate * MIB),
            busy_s=float(rate / 10.0 * rng.uniform(0.8, 1.2)) if edge not in slow else 0.49,
        )
        for edge in RING
    ]


def _after(slow: set[tuple[str, str]], looks: int, onset: int) -> list[tuple[Verdict, ...]]:
    rng, scorer = np.random.default_rng(3), EdgeScorer()
    return [
        scorer.update(look, _ring(slow if look >= onset else set(), rng), LOOK_S)
        for look in range(looks)
    ]


class Table:
    """What the kernel says at one look after the other."""

    def __init__(self, *looks: list[Connection]) -> None:
        self._looks = iter(looks)

    def read(self) -> tuple[Connection, ...]:
        return tuple(next(self._looks))


def test_traffic_between_two_looks_is_added_up_by_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """New connections, those within the host, and other processes' do not count, wherever they
    stand in the kernel's list."""
    monkeypatch.setattr(socket_rates, "socket_inodes", lambda pids: frozenset(range(100)))
    before = [
        Connection(1, 1, "a", "b", 100, 1.0, 0.5, 3, 0.1),
        Connection(2, 2, "a", "b", 100, 1.0, 0.0, 0, 0.1),
        Connection(3, 3, "a", "c", 100, 1.0, 0.0, 0, 0.1),
        Connection(4, 100, "a", "d", 100, 1.0, 0.0, 0, 0.1),
        Connection(5, 5, "a", "e", 100, 1.0, 0.0, 0, 0.1),
    ]
    after = [
        Connection(9, 9, "a", "b", 1 << 40, 9.0, 0.0, 9, 9.0),
        Connection(8, 8, "a", "a", 1 << 40, 9.0, 0.0, 9, 9.0),
        Connection(1, 1, "a", "b", 107, 2.0, 0.7, 4, 0.2),
        Connection(2, 2, "a", "b", 110, 1.3, 0.0, 0, 0.4),
        Connection(3, 3, "a", "c", 130, 1.9, 0.0, 2, 0.3),
        Connection(4, 100, "a", "d", 999, 1.9, 0.0, 2, 0.3),
        Connection(5, 5, "a", "e", 100, 1.9, 0.0, 2, 0.3),
    ]
    rates = SocketRates(Table(before, after, after))
    assert rates.look([1]) == ()
    edges = {(each.source, each.target): each for each in rates.look([1])}
    assert edges.keys() == {("a", "b"), ("a", "c")}
    both = edges["a", "b"]
    assert (both.acked_bytes, both.retransmits, both.rtt_s) == (17, 1, 0.4)
    assert both.busy_s == pytest.approx(0.8)
    assert edges["a", "c"].busy_s == pytest.approx(0.9)
    assert rates.look([1]) == ()


@pytest.mark.parametrize("onset", [0, 12])
def test_one_slow_edge_of_a_ring_is_named(onset: int) -> None:
    said = _after({("n1", "n2")}, onset + 12, onset)
    assert not any(said[:onset])
    (verdict,) = said[-1]
    assert (verdict.subject, verdict.ends) == (Subject.LINK, ("n1", "n2"))
    assert verdict.cause is Cause.NETWORK
    assert verdict.first_step - onset <= 3
    assert verdict.score > 0.5
    assert "Mbit/s" in " ".join(verdict.reasons)


def test_an_interface_that_is_slow_both_ways_is_a_host() -> None:
    (verdict,) = _after({("n1", "n2"), ("n2", "n3")}, 14, 2)[-1]
    assert (verdict.subject, verdict.ends) == (Subject.HOST, ("n2",))


def test_two_slow_edges_apart_are_two_links() -> None:
    said = _after({("n0", "n1"), ("n2", "n3")}, 14, 2)[-1]
    assert {verdict.ends for verdict in said} == {("n0", "n1"), ("n2", "n3")}


def _steady(
    busy_s: Mapping[Edge, float], seed: int, mebibytes: Mapping[Edge, int] | None = None
) -> list[tuple[Verdict, ...]]:
    """What is raised at each look while the edges go on like this.

    Args:
        busy_s: by edge, how long it is busy between two looks, give or take a tenth.
        mebibytes: by edge, how much it carries in that time; one where not given.
    """
    rng, scorer, sizes = np.random.default_rng(seed), EdgeScorer(), mebibytes or {}
    return [
        scorer.update(
            look,
            [
                EdgeTraffic(*edge, sizes.get(edge, 1) * MIB, float(mean_s * rng.uniform(0.9, 1.1)))
                for edge, mean_s in busy_s.items()
            ],
            LOOK_S,
        )
        for look in range(30)
    ]


def _named(slow: dict[Edge, float]) -> set[tuple[str, ...]]:
    """Who is named in a ring of six, on whose slow edges bytes take so many times as long."""
    hosts = [f"n{number}" for number in range(6)]
    edges = [*pairwise(hosts), (hosts[-1], hosts[0])]
    verdicts = _steady({edge: 0.06 * slow.get(edge, 1.0) for edge in edges}, seed=9)[-1]
    return {verdict.ends for verdict in verdicts}


def test_a_worse_edge_does_not_clear_one_that_is_slow_as_well() -> None:
    assert _named({("n0", "n1"): 4.0, ("n3", "n4"): 2.5}) == {("n0", "n1"), ("n3", "n4")}


def test_an_edge_that_is_a_little_slower_is_not_named_beside_a_much_worse_one() -> None:
    assert _named({("n3", "n4"): 2.2}) == {("n3", "n4")}
    assert _named({("n0", "n1"): 8.0, ("n3", "n4"): 2.2}) == {("n0", "n1")}


def test_an_interface_that_also_has_a_quick_edge_that_way_is_not_the_reason() -> None:
    """n0 is slow to n1 and quick to n2, so that its slow edges have no reason in common."""
    slow = {("n0", "n1"), ("n3", "n0")}
    edges = [*slow, ("n0", "n2"), ("n1", "n2"), ("n2", "n3"), ("n1", "n3"), ("n2", "n1")]
    busy_s = {edge: 0.3 if edge in slow else 0.08 for edge in sorted(edges)}
    verdicts = _steady(busy_s, seed=6)[-1]
    assert {(verdict.subject, verdict.ends) for verdict in verdicts} == {
        (Subject.LINK, edge) for edge in slow
    }


def test_an_edge_that_carries_more_in_proportionally_more_time_is_not_slow() -> None:
    times = dict(zip(RING, (1, 1, 4, 1), strict=True))
    busy_s = {edge: 0.1 * count for edge, count in times.items()}
    assert not any(_steady(busy_s, seed=6, mebibytes=times))


def test_a_healthy_ring_is_left_alone() -> None:
    assert not any(_after(set(), 600, 0))


def test_an_edge_that_recovers_is_let_go_once() -> None:
    rng, scorer = np.random.default_rng(5), EdgeScorer()
    said = [
        bool(scorer.update(look, _ring({RING[0]} if 5 <= look < 20 else set(), rng), LOOK_S))
        for look in range(60)
    ]
    assert said[19]
    assert not said[-1]
    assert sum(one != other for one, other in pairwise(said)) == 2


def test_an_edge_that_is_hardly_used_is_no_matter() -> None:
    rng, scorer = np.random.default_rng(5), EdgeScorer()
    for look in range(40):
        idle = EdgeTraffic("n2", "n0", acked_bytes=100_000, busy_s=0.4)
        assert not scorer.update(look, [*_ring(set(), rng), idle], LOOK_S)


def test_of_two_hosts_each_edge_is_held_against_its_past() -> None:
    scorer = EdgeScorer()
    for look in range(40):
        slow = look >= 20
        there = EdgeTraffic("a", "b", MIB, 0.45 if slow else 0.1)
        back = EdgeTraffic("b", "a", MIB, 0.1)
        said = scorer.update(look, [there, back], LOOK_S)
        assert slow or not said
    assert [verdict.ends for verdict in said] == [("a", "b")]


def test_addresses_become_hosts_by_who_sends_from_them() -> None:
    a, a_too, b = "10.0.0.1", "10.1.0.1", "10.0.0.2"
    sent = {
        "a": [EdgeTraffic(a, b, 5, 0.1, 0, 0.0), EdgeTraffic(a_too, b, 7, 0.3, 1, 0.0)],
        "b": [EdgeTraffic(b, a, 9, 0.2, 0, 0.0), EdgeTraffic(b, "10.9.9.9", 9, 9.0, 0, 0.0)],
    }
    assert set(by_host(sent)) == {EdgeTraffic("a", "b", 12, 0.3, 1), EdgeTraffic("b", "a", 9, 0.2)}


def test_the_kernel_tells_what_was_confirmed() -> None:
    got = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()

        def receive() -> None:
            left = 3 * MIB
            while left:
                left -= len(there.recv(1 << 16))
            got.set()

        reader = threading.Thread(target=receive)
        reader.start()
        here.sendall(bytes(3 * MIB))
        assert got.wait(20)
        reader.join()
        inode = os.fstat(here.fileno()).st_ino
        (mine,) = [one for one in KernelConnections().read() if one.inode == inode]
        here.close()
        there.close()
    assert mine.here == mine.there == "127.0.0.1"
    assert mine.acked_bytes >= 2 * MIB


class _Table:
    """Counters that a test sets."""

    def __init__(self) -> None:
        self.rows: tuple[Connection, ...] = ()

    def read(self) -> tuple[Connection, ...]:
        return self.rows


def test_a_look_says_what_was_sent_since_the_last() -> None:
    with socket.socket() as mine, socket.socket() as inside:
        inode, other = os.fstat(mine.fileno()).st_ino, os.fstat(inside.fileno()).st_ino
        table = _Table()
        rates = SocketRates(table)
        for acked, busy_s, receiver_s in ((100, 1.0, 0.5), (400, 3.0, 1.5)):
            table.rows = (
                Connection(1, inode, "10.0.0.1", "10.0.0.2", acked, busy_s, receiver_s, 0, 0.01),
                Connection(2, other, "10.0.0.1", "10.0.0.1", acked, busy_s, 0.0, 0, 0.01),
                Connection(3, 1, "10.0.0.1", "10.0.0.3", acked, busy_s, 0.0, 0, 0.01),
            )
            said = rates.look([os.getpid()])
    assert said == (EdgeTraffic("10.0.0.1", "10.0.0.2", 300, 1.0, 0, 0.01),)
    assert rates.look([]) == ()
