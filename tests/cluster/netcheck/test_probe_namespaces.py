"""The tcp probe between two network stacks: rates, directions, dead wires, dropped packets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from relkit.netcheck.model import Edge, Failure
from relkit.netcheck.record import read_edge

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]

SECRET = bytes(range(16)).hex()
ADDRESSES = ("10.79.0.1", "10.79.0.2")
PROBE = {
    "round": 0, "secret": SECRET, "probe": "tcp", "sizes": [65536], "streams": 2,
    "duration_s": 1.0, "both_ways": True, "timeout_s": 20,
}  # fmt: skip


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, timeout=10, capture_output=True)


@dataclass
class Agent:
    """`relkit agent` in a namespace."""

    name: str
    namespace: str
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "relkit", "agent",
             "--name", self.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.hear()["op"] == "hello"

    def say(self, op: str, **fields: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, "id": 1, "all": fields}) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def end(self) -> None:
        with self.process:
            try:
                self.process.communicate(timeout=20)
            finally:
                self.process.kill()


@dataclass(frozen=True)
class Pair:
    """Two agents on one wire, and the namespaces in which they are."""

    near: Agent
    far: Agent

    def limit(self, namespace: str, rate: str) -> None:
        # The queue keeps the wire full while a busy machine does not run the sender.
        _run("tc", "-n", namespace, "qdisc", "add", "dev", "wire", "root", "tbf",
             "rate", rate, "burst", "32kb", "latency", "200ms")  # fmt: skip

    def measure(self, **changes: object) -> list[Edge]:
        """One round; the edges as the connecting end reports them."""
        request = {**PROBE, **changes}
        self.far.say("listen", peer_address=ADDRESSES[0], **request)
        listening = self.far.hear()
        assert (listening["op"], listening["address"]) == ("listening", ADDRESSES[1])
        place = {"address": listening["address"], "port": listening["port"]}
        self.far.say("probe", role="accept", peer="near", **request, **place)
        self.near.say("probe", role="connect", peer="far", **request, **place)
        edges = [read_edge(self.near.hear()["edge"]) for _ in range(2)]
        return [edge for edge in edges if edge is not None]


@pytest.fixture
def pair() -> Iterator[Pair]:
    names = [f"relkit-probe-{os.getpid()}-{end}" for end in "ab"]
    agents: list[Agent] = []
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        _run("ip", "link", "add", "wire", "netns", names[0], "type", "veth",
             "peer", "name", "wire", "netns", names[1])  # fmt: skip
        for name, address in zip(names, ADDRESSES, strict=True):
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "wire")
            _run("ip", "-n", name, "link", "set", "wire", "up")
        for label, name in zip(("near", "far"), names, strict=True):
            agents.append(Agent(label, name))
        yield Pair(*agents)
    finally:
        for agent in agents:
            agent.end()
        for name in names:
            _run("ip", "netns", "del", name, check=False)


def test_each_direction_has_its_own_rate(pair: Pair) -> None:
    pair.limit(pair.near.namespace, "20mbit")
    pair.limit(pair.far.namespace, "60mbit")
    out, back = pair.measure()
    assert out.failure == back.failure == Failure.NONE
    # tbf counts Ethernet, IP and TCP headers: about 4 % of a packet of 1,500 bytes.
    assert out.bandwidth_gbps == pytest.approx(0.0192, rel=0.1)
    assert back.bandwidth_gbps == pytest.approx(0.0576, rel=0.1)
    assert out.both_ways_gbps == pytest.approx(0.0192, rel=0.25)


def test_a_very_slow_link_does_not_overrun_the_probe(pair: Pair) -> None:
    pair.limit(pair.near.namespace, "2mbit")
    out, _ = pair.measure(sizes=[4 << 20], streams=4, timeout_s=15)
    # Far less than one message of each stream; what is still under way is thrown away.
    assert out.failure == Failure.NONE
    assert 0.0005 < out.bandwidth_gbps < 0.003


def test_each_size_has_its_bandwidth_and_round_trip(pair: Pair) -> None:
    pair.limit(pair.near.namespace, "100mbit")
    sizes = [1 << 12, 1 << 18, 64 << 20]
    out, back = pair.measure(sizes=sizes, both_ways=False)
    assert out.failure == back.failure == Failure.NONE
    assert [row.size_bytes for row in out.by_size] == sizes
    for row in out.by_size[1:]:
        assert row.bandwidth_gbps == pytest.approx(0.096, rel=0.15)
    small, large, huge = out.by_size
    # 256 KiB at 96 Mbit/s take 22 ms, and less by what the bucket lets through at once.
    assert small.latency_p50_us < 5_000 < 10_000 < large.latency_p50_us < 100_000
    # 64 MiB would take six seconds: the link is not held up for that.
    assert huge.latency_p50_us == huge.latency_p99_us == 0.0
    assert out.detail == ""
    assert large.latency_p50_us == back.by_size[1].latency_p50_us


def test_facts_name_the_wire(pair: Pair) -> None:
    pair.near.say("facts", peers=[ADDRESSES[1], "192.0.2.1"])
    reply = pair.near.hear()
    facts = reply["facts"]
    assert (facts["interface"], facts["address"], facts["mtu"]) == ("wire", ADDRESSES[0], 1500)
    assert (facts["duplex"], facts["speed_mbps"]) == ("full", 10000)
    assert "no route" in reply["unreached"]["192.0.2.1"]


def test_a_dead_wire_is_no_answer(pair: Pair) -> None:
    pair.far.say("listen", peer_address=ADDRESSES[0], **PROBE)
    port = pair.far.hear()["port"]
    _run("ip", "-n", pair.far.namespace, "link", "set", "wire", "down")
    place = {"address": ADDRESSES[1], "port": port}
    pair.near.say("probe", role="connect", peer="far", **PROBE, **place)
    edges = [Edge(**pair.near.hear()["edge"]) for _ in range(2)]
    assert {edge.failure for edge in edges} == {Failure.NO_ANSWER.value}


@pytest.mark.parametrize("kind", ["blackhole", "unreachable", "prohibit", "throw"])
def test_a_route_that_excludes_the_peer_is_no_route_at_either_end(pair: Pair, kind: str) -> None:
    _run("ip", "-n", pair.near.namespace, "route", "add", kind, f"{ADDRESSES[1]}/32")
    place = {"address": ADDRESSES[1], "port": 9}
    pair.near.say("probe", role="connect", peer="far", **PROBE, **place)
    edges = [Edge(**pair.near.hear()["edge"]) for _ in range(2)]
    assert {edge.failure for edge in edges} == {Failure.NO_ROUTE.value}
    pair.near.say("listen", peer_address=ADDRESSES[1], **PROBE)
    reply = pair.near.hear()
    assert (reply["op"], reply["failure"]) == ("error", Failure.NO_ROUTE.value)
    assert f"no route to {ADDRESSES[1]}" in reply["detail"]


def test_a_name_without_an_address_says_nothing_about_the_network(pair: Pair) -> None:
    pair.near.say("listen", peer_address="no-such-host.invalid", **PROBE)
    reply = pair.near.hear()
    assert reply["op"] == "error"
    assert "failure" not in reply


def test_a_firewall_that_drops_is_no_answer_and_a_closed_port_is_refused(pair: Pair) -> None:
    place = {"address": ADDRESSES[1], "port": 9}
    pair.near.say("probe", role="connect", peer="far", **PROBE, **place)
    refused = [Edge(**pair.near.hear()["edge"]) for _ in range(2)]
    assert {edge.failure for edge in refused} == {Failure.REFUSED.value}
    # Nobody has this hardware address, so every packet is lost without a word.
    _run("ip", "-n", pair.near.namespace, "neigh", "replace", ADDRESSES[1],
         "lladdr", "02:00:00:00:00:99", "dev", "wire", "nud", "permanent")  # fmt: skip
    pair.near.say("probe", role="connect", peer="far", **PROBE, **place)
    dropped = [Edge(**pair.near.hear()["edge"]) for _ in range(2)]
    assert {edge.failure for edge in dropped} == {Failure.NO_ANSWER.value}


@pytest.mark.long
@pytest.mark.job
def test_gloo_takes_the_interface_that_leads_to_the_peer(pair: Pair) -> None:
    for agent in (pair.near, pair.far):
        pair.limit(agent.namespace, "200mbit")
    out, back = pair.measure(probe="gloo", sizes=[1 << 20], timeout_s=60, duration_s=1.0)
    assert out.failure == back.failure == Failure.NONE, out.detail
    # Had gloo found another way, nothing would limit it.
    assert 0.05 < out.bandwidth_gbps < 0.21
    assert 0.05 < back.bandwidth_gbps < 0.21


def test_an_agent_that_dies_in_mid_round_is_a_failed_edge(pair: Pair) -> None:
    request = {**PROBE, "duration_s": 30.0, "timeout_s": 100}
    pair.far.say("listen", peer_address=ADDRESSES[0], **request)
    place = {"address": ADDRESSES[1], "port": pair.far.hear()["port"]}
    pair.far.say("probe", role="accept", peer="near", **request, **place)
    pair.near.say("probe", role="connect", peer="far", **request, **place)
    # Data flows as soon as the far end has several connections.
    ports = ("ip", "netns", "exec", pair.far.namespace, "cat", "/proc/net/tcp")
    end = time.monotonic() + 20
    while (
        subprocess.run(ports, capture_output=True, timeout=10, check=True).stdout.count(b" 01 ") < 3
    ):
        assert time.monotonic() < end
        time.sleep(0.05)
    pair.far.process.kill()
    edges = [Edge(**pair.near.hear()["edge"]) for _ in range(2)]
    assert {edge.failure for edge in edges} == {Failure.RESET.value}
