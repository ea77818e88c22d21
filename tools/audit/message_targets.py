"""Messages on sockets and pipes: try-to-persist, the network check's agents, the handshake."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from relkit.fleet import agent, agent_rpc, wire
from relkit.hosts import NodeSpec
from relkit.net import handshake
from relkit.netcheck.measure import bundle
from relkit.netcheck.measure.controller import run_check
from relkit.netcheck.measure.options import CheckOptions
from relkit.netcheck.measure.schedule import Schedule
from relkit.netcheck.model import Edge
from relkit.ttp.actions import Limits
from relkit.ttp.controller import Controller
from relkit.ttp.link import LineBuffer, LinkEnded, parse_endpoint
from relkit.ttp.messages import (
    BadMessage,
    Done,
    Heartbeat,
    Hello,
    Note,
    Raised,
    Saved,
    SaveFailed,
    State,
    encode,
)
from relkit.ttp.plan import Survivor
from relkit.ttp.replicas import replica_map
from tests.ttp.test_messages import EVERY
from tests.unit.fleet.fake_fleet import FakeClock, FakeFleet
from tools.audit.target import Run, Target

SECRET = bytes(range(32))
NODES = tuple(NodeSpec(name) for name in ("a", "b"))


def _ttp(_: Path) -> list[bytes]:
    group = replica_map("tp0 pp0", (0, 1))
    hellos = b"".join(encode(Hello(rank, 2, 10 + rank, "n", 5, (group,))) for rank in (0, 1))
    fault = (Raised(1, "ValueError: x"), State(0, 1, Survivor(0, 5, ready=True)),
             State(1, 1, Survivor(1, 5)), Saved(0, 1, {"a.pt": ("ab" * 32, 3)}),
             SaveFailed(1, 1, "disk full"), Note(0, 1, "k", "00ff"))  # fmt: skip
    beats = (Heartbeat(0, 6, "reduce", 0.25), Heartbeat(1, 6, "ready"), Done(0), Done(1))
    return [
        hellos + b"".join(encode(message) for message in fault),
        hellos + b"".join(encode(message) for message in beats),
        b"".join(map(encode, EVERY)),
    ]


def _hear_ttp(_: Path) -> Run:
    def run(data: bytes) -> None:
        controller = Controller(2, Limits())
        now_s = 100.0
        for message in LineBuffer().feed(data[:20_000]):
            now_s += 0.5
            # A rank of another number, or a message for ranks, ends its link and nothing else.
            with contextlib.suppress(BadMessage):
                controller.received(message, now_s)
            controller.tick(now_s, ())
        controller.tick(now_s + 1000.0, ())

    return run


def _requests(_: Path) -> list[bytes]:
    listen = {"round": 1, "secret": "00ff", "peer_address": "127.0.0.1", "timeout_s": 1.0}
    probe = {"round": 1, "secret": "00ff", "peer": "b", "address": "127.0.0.1", "port": 9,
             "sizes": [65536], "streams": 1, "duration_s": 0.1, "timeout_s": 2.0}  # fmt: skip
    lines: list[dict[str, Any]] = [
        {"op": "listen", "id": 1, "all": listen, "to": {"a": {"port": 1}}},
        {"op": "probe", "id": 2, "all": probe},
        {"op": "facts", "id": 3, "all": {"peers": ["127.0.0.1"]}},
        {"node": "a", "part": '{"op": "ping", ', "last": False},
        {"node": "a", "part": '"id": 4}', "last": True},
    ]
    return [b"\n".join(json.dumps(line).encode() for line in lines)]


def _hear_requests(_: Path) -> Run:
    def run(data: bytes) -> None:
        joiner = wire.Reassembler()
        for line in data.split(b"\n"):
            with contextlib.suppress(wire.BadLine):
                message = joiner.feed(wire.decode(line))
                if message is not None:
                    agent._request("a", message, threading.Event())

    return run


class _Odd(FakeFleet):
    """Agents whose replies are the lines of an input, in turn."""

    replies: Sequence[dict[str, Any]] = ()
    taken = 0

    def _replies(self, node: str, op: str, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        self.taken += 1
        if self.taken <= len(self.replies):
            return [{"id": -1, **self.replies[self.taken - 1]}]
        return super()._replies(node, op, fields)


class _OneRound:
    """One round of both nodes."""

    def next_round(self, edges: Sequence[Edge]) -> tuple[tuple[str, str], ...]:
        return () if edges else (("a", "b"),)

    max_rounds = 1
    under_load = False


def _replies(_: Path) -> list[bytes]:
    edge = {"source": "a", "target": "b", "round": 0, "bandwidth_gbps": 9.0, "failure": "",
            "latency_p50_us": 3.0, "sizes": [{"size_bytes": 1, "bandwidth_gbps": 1.0}]}  # fmt: skip
    facts = {"name": "a", "interface": "eth0", "mtu": 1500, "address": "10.0.0.1"}
    lines: list[dict[str, Any]] = [
        {"op": "facts", "facts": facts, "routes": {"b": {"peer": "b"}}, "unreached": {}},
        {"op": "facts", "facts": {**facts, "name": "b"}, "missing": "x"},
        {"op": "compute", "compute_gflops": 50.0, "memory_gbps": 5.0, "devices": [{"index": 0}]},
        {"op": "compute", "compute_gflops": 50.0, "memory_gbps": 5.0},
        {"op": "listening", "address": "10.0.0.9", "port": 9},
        {"op": "edge", "edge": edge},
        {"op": "edge", "edge": {**edge, "source": "b", "target": "a"}},
        {"op": "ended", "unauthenticated": 1},
        {"op": "ended", "unauthenticated": 0},
    ]
    return [b"\n".join(json.dumps(line).encode() for line in lines)]


def _hear_replies(folder: Path) -> Run:
    def run(data: bytes) -> None:
        clock = FakeClock()
        fleet = _Odd(clock=clock)
        lines = []
        for line in data.split(b"\n"):
            with contextlib.suppress(wire.BadLine):
                lines.append(wire.decode(line))
        fleet.replies = lines
        schedule: Schedule = _OneRound()
        # The conversation waits on this clock, not on the real one.
        with mock.patch.object(agent_rpc.AgentRpc.__init__, "__defaults__", (clock,)):
            result = run_check(fleet, NODES, lambda _: schedule, options=CheckOptions())
        bundle.save(folder, result)
        bundle.load(folder)

    return run


def _handshakes(_: Path) -> list[bytes]:
    greeted = handshake.BANNER + bytes(handshake.NONCE_BYTES)
    return [
        greeted + handshake.answer(SECRET, 1, greeted, handshake.Label(0, 1)),
        b"[fe80::1]:2222" + bytes(60),
        b"127.0.0.1:80",
    ]


def _shake_hands(_: Path) -> Run:
    greeted = handshake.BANNER + bytes(handshake.NONCE_BYTES)
    right = _handshakes(Path())[0][len(greeted) :]

    def run(data: bytes) -> None:
        answered = data[len(greeted) :]
        admitted = handshake.check_answer(SECRET, 1, greeted, answered)
        # Each run makes a nonce of its own, so `right` is of an earlier process or of this one.
        assert admitted is None or answered[-32:] != right[-32:] or answered == right
        handshake.check_confirmation(SECRET, 1, data[:32], answered, data[:32])
        with contextlib.suppress(LinkEnded):
            parse_endpoint(data[:40].decode("latin-1"))

    return run


TARGETS = (
    Target("ttp", "try-to-persist's messages, its controller", _ttp, _hear_ttp, "json"),
    Target("requests", "requests to agents", _requests, _hear_requests, "json"),
    Target("replies", "replies of agents, a whole check", _replies, _hear_replies, "json"),
    Target("handshake", "the authentication handshake", _handshakes, _shake_hands),
)
