"""A channel with one process a node: what local, ssh, kubectl and command have in common."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from relkit.errors import ToolMissing
from relkit.fleet import wire
from relkit.fleet.conversation import Conversation
from relkit.fleet.exit_reason import ExitReason
from relkit.fleet.io_multiplexer import Event
from relkit.fleet.stream import Stream
from relkit.fleet.wire import BadLine
from relkit.hosts import NodeSpec


class Carrier(Protocol):
    """How one node is reached."""

    name: str

    def argv(self, node: NodeSpec) -> Sequence[str]:
        """The command whose stdin and stdout are the agent's."""
        ...

    def explain(self, node: NodeSpec, code: int, complaint: str) -> ExitReason:
        """Why that command ended; code is -n for signal n."""
        ...


class ProcessChannel(Conversation):
    """The Channel over one process a node.

    Args:
        carrier: how each is reached.
        fanout: how many may be starting at the same time.
        node_limit_s: how long each may take to say hello.
    """

    def __init__(self, carrier: Carrier, *, fanout: int = 64, node_limit_s: float = 30.0) -> None:
        super().__init__()
        self.name = carrier.name
        self._carrier = carrier
        self._fanout = max(1, fanout)
        self._node_limit_s = node_limit_s

    def _bring_up(self, end: float, deadline_s: float) -> None:
        """Start at most `fanout` at a time, the next one when one has answered or failed."""
        waiting = deque(self._roster.silent)
        limits: dict[str, float] = {}
        while (silent := self._roster.silent) and (now := time.monotonic()) < end:
            limits = {name: limits[name] for name in silent if name in limits}
            for name in [name for name, limit in limits.items() if now >= limit]:
                self._drop(name, f"did not answer within {self._node_limit_s:g} s")
            if waiting and len(limits) < self._fanout:
                name = waiting.popleft()
                if self._launch(name):
                    limits[name] = now + self._node_limit_s
                # Handle those that run already between two starts: a start takes milliseconds.
                self._step(0)
            else:
                self._step(min([end, *limits.values()]) - now)
        for name in self._roster.silent:
            if name in limits:
                self._drop(name, f"did not answer within {deadline_s:g} s")
            else:
                self._roster.fail(
                    name, f"was not tried: the deadline of {deadline_s:g} s passed before its turn"
                )

    def _launch(self, name: str) -> bool:
        try:
            self._multiplexer.add(Stream(name, self._carrier.argv(self._nodes[name])))
        except ToolMissing as error:
            self._roster.fail(name, str(error))
            return False
        return True

    def _keys(self) -> Iterable[str]:
        return self._roster.live

    def _lines(self, message: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        """Each pipe has one reader, which only needs its own part."""
        to = message.get("to")
        if to is None:
            yield from super()._lines(message)
            return
        for name in self._keys():
            if name in to:
                yield name, wire.encode({**message, "to": {name: to[name]}})

    def _handle(self, event: Event) -> None:
        name = event.key
        if event.kind == "end":
            node = self._nodes[name]
            ended = self._carrier.explain(node, event.code, event.complaint)
            if event.text:
                ended = ExitReason(event.text)
            self._roster.fail(name, ended.detail, host_down=ended.host_down)
        elif event.kind == "line" and name not in self._roster.ended:
            is_first = not self._roster.has_answered(name)
            try:
                self._roster.accept(event.data, name)
            except BadLine as error:
                self._drop(name, f"sent {error}")
            else:
                if name in self._roster.ended:
                    self._multiplexer.end(name, "")
                elif is_first and self._roster.has_answered(name):
                    # What a login shell complains of is not why a later agent ends.
                    self._multiplexer.forget_complaint(name)

    def _drop(self, name: str, why: str) -> None:
        self._roster.fail(name, why)
        self._multiplexer.end(name, why)

    def _fail_stuck(self, key: str, why: str) -> None:
        self._drop(key, why)
