"""A channel with one process a node: what local, ssh, kubectl and command have in common."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from relkit.errors import ToolMissing
from relkit.fleet import wire
from relkit.fleet.channel import Answer
from relkit.fleet.pump import Pump, allow_files
from relkit.fleet.roster import Roster
from relkit.fleet.stream import Stream
from relkit.hosts import NodeSpec

SEND_LIMIT_S = 10.0
ALIVE_S = 60.0
_SPARE_FILES = 128


class Carrier(Protocol):
    """How one node is reached."""

    name: str

    def prepare(self, nodes: Sequence[NodeSpec], deadline_s: float) -> Mapping[str, str]:
        """Look at all nodes before any is started; name -> why it can't be reached."""
        ...

    def argv(self, node: NodeSpec) -> Sequence[str]:
        """The command whose stdin and stdout are the agent's."""
        ...

    def explain(self, node: NodeSpec, code: int, complaint: str) -> str:
        """Why that command ended, for a person; code is -n for signal n."""
        ...


class ProcessChannel:
    """The Channel over one process a node.

    Args:
        carrier: how each is reached.
        fanout: how many may be starting at the same time.
        node_limit_s: how long each may take to say hello.
    """

    def __init__(self, carrier: Carrier, *, fanout: int = 64, node_limit_s: float = 30.0) -> None:
        self.name = carrier.name
        self._carrier = carrier
        self._fanout = max(1, fanout)
        self._node_limit_s = node_limit_s
        self._pump = Pump()
        self._nodes: dict[str, NodeSpec] = {}
        self._roster = Roster(())
        self._spoke = 0.0
        self._closed = False

    def start(self, nodes: Sequence[NodeSpec], deadline_s: float) -> Mapping[str, Answer]:
        """Start at most `fanout` at a time, the next one when one has answered or failed."""
        began = time.monotonic()
        end = began + deadline_s
        self._nodes = {node.name: node for node in nodes}
        self._roster = Roster(self._nodes)
        self._spoke = began
        allow_files(3 * len(nodes) + _SPARE_FILES)
        for name, why in self._carrier.prepare(nodes, deadline_s).items():
            self._roster.fail(name, why)
        waiting = deque(self._roster.silent)
        limits: dict[str, float] = {}
        while (silent := set(self._roster.silent)) and (now := time.monotonic()) < end:
            limits = {name: limit for name, limit in limits.items() if name in silent}
            for name in [name for name, limit in limits.items() if now >= limit]:
                self._drop(name, f"did not answer within {self._node_limit_s:g} s")
                del limits[name]
            while waiting and len(limits) < self._fanout:
                name = waiting.popleft()
                if self._launch(name):
                    limits[name] = time.monotonic() + self._node_limit_s
            self._step(min([end, *limits.values()]) - time.monotonic())
        for name in self._roster.silent:
            if name in limits:
                self._drop(name, f"did not answer within {deadline_s:g} s")
            else:
                self._roster.fail(
                    name, f"was not reached: {deadline_s:g} s ran out before its turn"
                )
        return self._roster.answers()

    def send(self, message: Mapping[str, Any]) -> None:
        """Broadcast; see Channel.send."""
        self._broadcast(wire.encode(message))
        for name in self._pump.flush(SEND_LIMIT_S):
            self._drop(name, f"took no message for {SEND_LIMIT_S:g} s")

    def receive(self, timeout_s: float) -> tuple[str, dict[str, Any]] | None:
        """The next message; see Channel.receive."""
        end = time.monotonic() + timeout_s
        while (message := self._roster.take()) is None:
            left = end - time.monotonic()
            if not self._step(max(0.0, left)) and left <= 0:
                return None
        return message

    def close(self, deadline_s: float) -> None:
        """End all agents; see Channel.close."""
        if not self._closed:
            self._closed = True
            self._pump.close(deadline_s)

    def _launch(self, name: str) -> bool:
        try:
            self._pump.add(Stream(name, self._carrier.argv(self._nodes[name])))
        except ToolMissing as error:
            self._roster.fail(name, str(error))
            return False
        return True

    def _broadcast(self, line: bytes) -> None:
        self._spoke = time.monotonic()
        for name in self._roster.live:
            self._pump.feed(name, line)

    def _step(self, timeout_s: float) -> bool:
        """Handle one event; False when none came in time."""
        if time.monotonic() - self._spoke > ALIVE_S:
            self._broadcast(wire.encode({"op": "alive"}))
        event = self._pump.poll(max(0.0, min(timeout_s, ALIVE_S)))
        if event is None:
            return False
        if event.kind == "line":
            self._hear(event.key, event.data)
        elif event.kind == "end":
            why = event.text or self._carrier.explain(
                self._nodes[event.key], event.code, event.complaint
            )
            self._roster.fail(event.key, why)
        return True

    def _hear(self, name: str, line: bytes) -> None:
        if name in self._roster.ended:
            return
        try:
            self._roster.hear(line, name)
        except wire.BadLine as error:
            self._drop(name, f"sent {error}")

    def _drop(self, name: str, why: str) -> None:
        self._roster.fail(name, why)
        self._pump.end(name, why)
