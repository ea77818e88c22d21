"""What all channels share once their processes run: broadcast, receive, compare clocks, close."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from relkit.fleet import wire
from relkit.fleet.channel import Answer
from relkit.fleet.io_multiplexer import Event, IoMultiplexer, allow_files
from relkit.fleet.roster import CLOCK_ID, Roster
from relkit.hosts import NodeSpec

SEND_LIMIT_S = 10.0
ALIVE_S = 60.0
_CLOCK_LIMIT_S = 1.0
_SPARE_FILES = 128


class Conversation(ABC):
    """The half of a Channel that does not depend on who carries it.

    Subclasses start processes, and interpret their lines and exit codes.
    """

    def __init__(self) -> None:
        self._multiplexer = IoMultiplexer()
        self._roster = Roster(())
        self._nodes: dict[str, NodeSpec] = {}
        self._spoke = 0.0
        self._closed = False

    def start(self, nodes: Sequence[NodeSpec], deadline_s: float) -> Mapping[str, Answer]:
        """Start agents, wait for their hellos, compare clocks; see Channel.start."""
        end = time.monotonic() + deadline_s
        self._nodes = {node.name: node for node in nodes}
        self._roster = Roster(self._nodes)
        self._spoke = time.monotonic()
        allow_files(3 * len(nodes) + _SPARE_FILES)
        self._bring_up(end, deadline_s)
        self._compare_clocks(end)
        return self._roster.answers()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send; see Channel.send."""
        self._broadcast(message)
        for key in self._multiplexer.flush(SEND_LIMIT_S):
            self._fail_stuck(key, f"accepted no message for {SEND_LIMIT_S:g} s")

    def receive(self, timeout_s: float) -> tuple[str, dict[str, Any]] | None:
        """The next message; see Channel.receive."""
        end = time.monotonic() + timeout_s
        while (message := self._roster.take()) is None:
            left = end - time.monotonic()
            if not self._step(left) and left <= 0:
                return None
        return message

    def close(self, deadline_s: float) -> None:
        """End all agents; see Channel.close."""
        if not self._closed:
            self._closed = True
            self._multiplexer.close(deadline_s)

    @abstractmethod
    def _bring_up(self, end: float, deadline_s: float) -> None:
        """Start processes; on return each node has answered or failed."""

    @abstractmethod
    def _keys(self) -> Iterable[str]:
        """The streams that a broadcast goes to."""

    @abstractmethod
    def _handle(self, event: Event) -> None:
        """A line, a complaint, or an end."""

    @abstractmethod
    def _fail_stuck(self, key: str, why: str) -> None:
        """This stream accepts no more messages."""

    def _lines(self, message: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        """What each stream is sent of a message: all of it, where many nodes share a stream."""
        line = wire.encode(message)
        for key in self._keys():
            yield key, line

    def _broadcast(self, message: Mapping[str, Any]) -> None:
        self._spoke = time.monotonic()
        for key, line in self._lines(message):
            self._multiplexer.feed(key, line)

    def _step(self, timeout_s: float) -> bool:
        """Handle one event; False when none came in time."""
        if time.monotonic() - self._spoke > ALIVE_S:
            self._broadcast({"op": "alive"})
        event = self._multiplexer.poll(max(0.0, min(timeout_s, ALIVE_S)))
        if event is None:
            return False
        self._handle(event)
        return True

    def _compare_clocks(self, end: float) -> None:
        """Ping all at once: a hello may have waited to be read, the answer to this has not."""
        limit = min(end, time.monotonic() + _CLOCK_LIMIT_S)
        self._roster.ping_sent_s = time.time()
        self._broadcast({"op": "ping", "id": CLOCK_ID})
        while self._roster.clocks_open and (left := limit - time.monotonic()) > 0:
            self._step(left)
