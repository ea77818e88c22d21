"""Which nodes are expected, have answered, are gone: the bookkeeping that all channels share."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from relkit import __version__
from relkit.fleet.channel import GONE, Answer
from relkit.fleet.wire import PROTOCOL, BadLine, Reassembler, decode, printable

# What login shells print before the agent runs is tolerated, up to this many lines.
_MAX_NOISE_LINES = 100
_MAX_UNREAD_BYTES = 16 << 20
CLOCK_ID = -1
"""The id of the ping that compares clocks; its answer is not for the channel's user."""


class Roster:
    """Nodes by name, and the messages that wait to be received.

    Args:
        names: the nodes of this channel.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._answers: dict[str, Answer] = {}
        self._gone: set[str] = set()
        self._inbox: deque[tuple[str, dict[str, Any], int]] = deque()
        self._unread_bytes: dict[str, int] = {}
        self._noise: dict[str, list[str]] = {}
        self._reassembler = Reassembler()
        self._skews_s: dict[str, float] = {}
        self.ping_sent_s = 0.0

    @property
    def clocks_open(self) -> bool:
        """Whether a live node has not answered the clock's ping yet."""
        return any(name not in self._skews_s for name in self.live)

    @property
    def silent(self) -> list[str]:
        """Nodes that have neither answered nor failed."""
        return [name for name in self._names if name not in self._answers]

    def has_answered(self, name: str) -> bool:
        """Whether this node's agent has said hello."""
        return name in self._answers

    @property
    def live(self) -> list[str]:
        """Nodes whose agent answered and has not ended."""
        return [n for n, a in self._answers.items() if a.answered and n not in self._gone]

    @property
    def ended(self) -> set[str]:
        """Nodes whose agent is gone, or never came up."""
        return self._gone

    def answers(self) -> dict[str, Answer]:
        """One a node, in the order given; what is still silent is left out."""
        return {
            name: replace(self._answers[name], clock_skew_s=self._skews_s.get(name, 0.0))
            for name in self._names
            if name in self._answers
        }

    def take(self) -> tuple[str, dict[str, Any]] | None:
        """The oldest message that was not received yet."""
        if not self._inbox:
            return None
        node, message, size_bytes = self._inbox.popleft()
        self._unread_bytes[node] = self._unread_bytes.get(node, 0) - size_bytes
        return node, message

    def accept(self, line: bytes, sender: str = "") -> str:
        """Sort one line in.

        Args:
            line: as it came.
            sender: the node that this stream belongs to; "" where many share one stream.

        Returns:
            The name of the node that spoke; "" where the line is noise or nobody's.

        Raises:
            BadLine: from an agent that has answered, or under another node's name: it cannot be
                trusted any more.
        """
        early = sender in self._names and sender not in self._answers
        if early and not line.lstrip().startswith(b"{"):
            self._keep_noise(sender, line)
            return ""
        try:
            message = decode(line)
        except BadLine:
            if sender:
                raise
            # On a shared stream the sender is unknown; it will be missed as a silent node.
            return ""
        node = message.get("node")
        if not isinstance(node, str) or node not in self._names or node in self._gone:
            if sender:
                raise BadLine(f"a message tagged as {printable(str(node).encode())!r}")
            return ""
        if sender and node != sender:
            raise BadLine(f"a message tagged as another node's: {printable(node.encode())!r}")
        whole = self._reassembler.feed(message)
        if whole is not None:
            self._sort_in(node, whole, len(line))
        return node

    def fail(self, node: str, why: str, *, host_down: bool = False) -> None:
        """This node did not come up, or is gone; only the first reason counts.

        Args:
            why: for a person. host_down: see Answer.
        """
        if node not in self._answers:
            noise = self._noise.get(node)
            printed = f" (it printed: {noise[-1]})" if noise else ""
            self._answers[node] = Answer(node, False, why + printed, host_down=host_down)
            self._gone.add(node)
        elif node not in self._gone:
            self._gone.add(node)
            self._inbox.append((node, {"node": node, "op": GONE, "detail": why}, 0))

    def _sort_in(self, node: str, message: dict[str, Any], size_bytes: int) -> None:
        if message.get("node") != node or not isinstance(message.get("op"), str):
            raise BadLine("a message without op or under another name", node)
        if node in self._answers:
            # Only the roster declares a node gone, and an agent sends hello once.
            if message["op"] in (GONE, "hello"):
                raise BadLine(f"an unexpected {message['op']!r}", node)
            if message["op"] == "pong" and message.get("id") == CLOCK_ID:
                self._skews_s[node] = _skew_s(message, self.ping_sent_s)
            else:
                self._keep(node, message, size_bytes)
            return
        if message["op"] != "hello":
            raise BadLine(f"{printable(str(message['op']).encode())!r} before hello", node)
        self._answers[node] = _judge(node, message)
        if not self._answers[node].answered:
            self._gone.add(node)

    def _keep(self, node: str, message: dict[str, Any], size_bytes: int) -> None:
        unread = self._unread_bytes.get(node, 0) + size_bytes
        if unread > _MAX_UNREAD_BYTES:
            raise BadLine(f"more than {_MAX_UNREAD_BYTES} bytes that were not requested", node)
        self._unread_bytes[node] = unread
        self._inbox.append((node, message, size_bytes))

    def _keep_noise(self, sender: str, line: bytes) -> None:
        noise = self._noise.setdefault(sender, [])
        if line.strip():
            noise.append(printable(line))
        if len(noise) > _MAX_NOISE_LINES:
            raise BadLine(f"{_MAX_NOISE_LINES} lines that are not messages, such as {noise[-1]!r}")


def _judge(node: str, hello: dict[str, Any]) -> Answer:
    """Whether this agent speaks our protocol."""
    protocol = hello.get("protocol")
    if protocol != PROTOCOL:
        theirs = printable(str(hello.get("version")).encode())
        detail = (
            f"relkit {theirs} there speaks protocol {printable(str(protocol).encode())}, relkit "
            f"{__version__} here speaks {PROTOCOL}: install the same version on both"
        )
        return Answer(node, False, detail, hello)
    return Answer(node, True, "", hello)


def _skew_s(pong: dict[str, Any], sent_s: float) -> float:
    """Their clock minus ours, as if both ways took equally long."""
    theirs = pong.get("unix_s")
    if not isinstance(theirs, (int, float)) or not math.isfinite(theirs):
        raise BadLine("a pong without unix_s", str(pong.get("node")))
    return round(theirs - (sent_s + time.time()) / 2, 4)
