"""A fake Channel: agents that answer at once, stay silent, die, or talk nonsense, on order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relkit.fleet.channel import Answer
from relkit.hosts import NodeSpec

Message = dict[str, Any]


class FakeClock:
    """Time that passes only where somebody waits for an answer that does not come."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeFleet:
    """The Channel protocol in memory.

    Args:
        clock: moved on by every wait in vain.
        unanswered: node -> why its agent did not come up.
        gbps: (source, target) -> figure; 10 for all others.
        failing: pairs, either way round, that get no answer.
        silent: (node, op): says nothing to it, ever.
        dying: (node, op): ends when it is asked.
        odd: (node, op) -> replies in place of the right ones.
        unauthenticated: node -> count reported at the end of a round.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    unanswered: Mapping[str, str] = field(default_factory=dict)
    gbps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    failing: set[frozenset[str]] = field(default_factory=set)
    silent: set[tuple[str, str]] = field(default_factory=set)
    dying: set[tuple[str, str]] = field(default_factory=set)
    odd: Mapping[tuple[str, str], Sequence[Message]] = field(default_factory=dict)
    unauthenticated: Mapping[str, int] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)
    skew_s: Mapping[str, float] = field(default_factory=dict)
    on_send: Callable[[Mapping[str, Any]], None] = lambda _message: None
    name: str = "fake"
    closed: int = 0
    sent: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inbox: deque[tuple[str, Message]] = deque()
        self._live: list[str] = []

    def start(self, nodes: Sequence[NodeSpec], deadline_s: float) -> Mapping[str, Answer]:
        self._live = [node.name for node in nodes if node.name not in self.unanswered]
        return {
            node.name: Answer(
                node.name,
                node.name not in self.unanswered,
                self.unanswered.get(node.name, ""),
                {"hostname": f"host-{node.name}", "machine": self.machines.get(node.name, "")},
                self.skew_s.get(node.name, 0.0),
            )
            for node in nodes
        }

    def send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(message)
        self.on_send(message)
        op = str(message["op"])
        for node in list(self._live):
            if "to" in message and node not in message["to"]:
                continue
            fields = {**message["all"], **message.get("to", {}).get(node, {})}
            if (node, op) in self.dying:
                self._live.remove(node)
                self._inbox.append((node, {"op": "gone", "detail": "killed"}))
            elif (node, op) not in self.silent:
                replies = self.odd.get((node, op)) or self._replies(node, op, fields)
                self._inbox += [(node, {"id": message["id"], **reply}) for reply in replies]

    def receive(self, timeout_s: float) -> tuple[str, Message] | None:
        if self._inbox:
            return self._inbox.popleft()
        self.clock.now_s += timeout_s + 1e-6
        return None

    def close(self, deadline_s: float) -> None:
        self.closed += 1

    def _replies(self, node: str, op: str, fields: Mapping[str, Any]) -> list[Message]:
        if op == "facts":
            facts = {"name": node, "interface": "eth0", "mtu": 1500, "address": f"10.0.0.{node}"}
            return [{"op": "facts", "facts": facts}]
        if op == "listen":
            return [{"op": "listening", "address": "10.0.0.9", "port": 9}]
        if op == "end":
            return [{"op": "ended", "unauthenticated": self.unauthenticated.get(node, 0)}]
        if op == "rates":
            return [{"op": "rates", "rates": {"cpu": [9.0, 0.0, 8.0]}, "models": {"cpu": "m"}}]
        if op == "compute":
            return [{"op": "compute", "compute_gflops": 50.0, "memory_gbps": 5.0}]
        if fields["role"] == "accept":
            return []
        pair = (node, str(fields["peer"]))
        if frozenset(pair) in self.failing:
            figures: Message = {"failure": "no answer (dropped or dead)", "detail": "timed out"}
        else:
            figures = {"latency_p50_us": 30.0}
        return [
            {"op": "edge", "edge": {
                "source": source, "target": target, "round": fields["round"], **figures,
                "bandwidth_gbps": self.gbps.get((source, target), 10.0),
            }}
            for source, target in (pair, pair[::-1])
        ]  # fmt: skip
