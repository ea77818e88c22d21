"""A fleet's channel through the job's rendezvous store: no new port, no new way between nodes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from relkit.fleet import wire
from relkit.fleet.agent import Handler, serve
from relkit.fleet.channel import Answer
from relkit.fleet.roster import Roster
from relkit.hosts import NodeSpec
from relkit.launch.job.exchange import ExchangeBroken, Mailbox

# An empty note ends a queue: no message is empty.
_END = b""
_JOIN_S = 2.0


def poll_interval_s(nodes: int) -> float:
    """Time between two polls of a queue, s: all nodes together ask about 2,000 times a second."""
    return min(0.5, max(0.02, nodes / 2000))


class _NoteQueue:
    """Notes that one node leaves for one other, in order; reading never waits.

    Args:
        mailbox: the store. name: of the queue, the same on both sides.
    """

    def __init__(self, mailbox: Mailbox, name: str) -> None:
        self._mailbox = mailbox
        self._name = name
        self._next = 0

    def put(self, note: bytes) -> None:
        """Leave one more note."""
        self._mailbox.put(f"{self._name}/{self._next}", note)
        self._next += 1

    def take(self) -> bytes | None:
        """The oldest note that was not taken yet; None where there is none so far."""
        note = self._mailbox.get(f"{self._name}/{self._next}")
        if note is not None:
            self._next += 1
        return note


class StoreChannel:
    """The controller's end; see relkit.fleet.channel.Channel.

    Args:
        mailbox: in the store, the same prefix on all nodes.
        numbers: name -> number of the node in the rendezvous.
    """

    name = "store"

    def __init__(self, mailbox: Mailbox, numbers: Mapping[str, int]) -> None:
        self._inboxes = {n: _NoteQueue(mailbox, f"to/{i}") for n, i in numbers.items()}
        self._outboxes = {n: _NoteQueue(mailbox, f"from/{i}") for n, i in numbers.items()}
        self._poll_s = poll_interval_s(len(numbers))
        self._roster = Roster(())
        self._closed = False

    def start(self, nodes: Sequence[NodeSpec], deadline_s: float) -> Mapping[str, Answer]:
        """Wait for the hello of each node's agent; see Channel.start.

        Raises:
            ExchangeBroken: the store does not answer.
        """
        end = time.monotonic() + deadline_s
        self._roster = Roster(node.name for node in nodes)
        while self._roster.silent and time.monotonic() < end:
            if not self._receive_notes():
                time.sleep(self._poll_s)
        for name in self._roster.silent:
            self._roster.fail(
                name, f"its agent sent nothing through the store for {deadline_s:g} s"
            )
        # Clocks are not compared: notes wait for their reader, and the check needs no common time.
        return self._roster.answers()

    def send(self, message: Mapping[str, Any]) -> None:
        """Leave the message for each live node that it concerns, with that node's part only.

        Raises:
            ExchangeBroken: the store does not answer.
        """
        to = message.get("to")
        for name in self._roster.live:
            if to is None:
                self._inboxes[name].put(wire.encode(message))
            elif name in to:
                self._inboxes[name].put(wire.encode({**message, "to": {name: to[name]}}))

    def receive(self, timeout_s: float) -> tuple[str, dict[str, Any]] | None:
        """The next message of any agent; see Channel.receive.

        Raises:
            ExchangeBroken: the store does not answer.
        """
        end = time.monotonic() + timeout_s
        while (message := self._roster.take()) is None:
            if self._receive_notes():
                continue
            if time.monotonic() >= end:
                return None
            time.sleep(min(self._poll_s, max(0.0, end - time.monotonic())))
        return message

    def close(self, deadline_s: float) -> None:
        """Tell all agents that no more requests follow; see Channel.close."""
        if self._closed:
            return
        self._closed = True
        end = time.monotonic() + deadline_s
        for row in self._inboxes.values():
            if time.monotonic() >= end:
                return
            try:
                row.put(_END)
            except ExchangeBroken:
                # The agents see the same broken store and end by themselves.
                return

    def _receive_notes(self) -> bool:
        """Take at most one note of each node; False where there was none at all."""
        received = False
        for name, row in self._outboxes.items():
            if name in self._roster.ended:
                continue
            note = row.take()
            if note is None:
                continue
            received = True
            if note == _END:
                self._roster.fail(name, "its agent ended")
                continue
            try:
                self._roster.accept(note, name)
            except wire.BadLine as error:
                self._roster.fail(name, f"its agent sent {error}")
        return received


class StoreAgent:
    """One node's agent, in threads of this process, reached through the store.

    It is the same agent that `relkit agent` runs; threads connect its pipes to the store.

    Args:
        mailbox: in the store, the same prefix on all nodes.
        number: of this node in the rendezvous; name: what the controller calls it.
        handlers: what it can do.
    """

    def __init__(
        self, mailbox: Mailbox, number: int, name: str, handlers: Mapping[str, Handler]
    ) -> None:
        self._inbox = _NoteQueue(mailbox, f"to/{number}")
        self._outbox = _NoteQueue(mailbox, f"from/{number}")
        self._poll_s = poll_interval_s(mailbox.nodes)
        self._name = name
        self._handlers = handlers
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start serving; the hello is in the store a moment later."""
        requests_out, requests_in = os.pipe()
        replies_out, replies_in = os.pipe()
        for run, ends in (
            (self._forward_requests, (requests_in,)),
            (self._serve, (requests_out, replies_in)),
            (self._forward_replies, (replies_out,)),
        ):
            thread = threading.Thread(
                target=run, args=ends, name=f"relkit-netcheck{run.__name__}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End it; listeners that a handler still holds end with their own deadlines."""
        self._stopping.set()
        end = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _serve(self, requests: int, replies: int) -> None:
        with os.fdopen(requests, "rb", 0) as stdin, os.fdopen(replies, "wb") as stdout:
            serve(self._name, self._handlers, stdin, stdout)

    def _forward_requests(self, requests: int) -> None:
        """Pass notes on to the agent until the controller closes, or stop()."""
        with contextlib.suppress(ExchangeBroken, BrokenPipeError), os.fdopen(requests, "wb") as end:
            while not self._stopping.is_set():
                note = self._inbox.take()
                if note == _END:
                    return
                if note is None:
                    self._stopping.wait(self._poll_s)
                    continue
                end.write(note)
                end.flush()

    def _forward_replies(self, replies: int) -> None:
        """Put the agent's replies into the store until it ends."""
        broken = False
        with os.fdopen(replies, "rb") as lines:
            for line in lines:
                # Read on in any case: an agent that nobody reads would block for ever.
                if not broken:
                    broken = not self._put(line)
        if not broken:
            self._put(_END)

    def _put(self, note: bytes) -> bool:
        try:
            self._outbox.put(note)
        except ExchangeBroken:
            return False
        return True
