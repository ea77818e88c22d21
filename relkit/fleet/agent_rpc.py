"""Requests to all agents at once, with one deadline for all replies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relkit.fleet.channel import Channel

Message = dict[str, Any]


class AgentRpc:
    """Sends numbered requests to a fleet's agents, ignores late replies and records lost agents.

    Args:
        channel: already started.
        live: names of the nodes whose agents answered.
        clock: seconds, monotonic.
    """

    def __init__(
        self, channel: Channel, live: Iterable[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._number = 0
        self.live = set(live)
        self.lost: dict[str, str] = {}

    def lose(self, node: str, why: str) -> None:
        """Stop asking this node."""
        if node in self.live:
            self.live.discard(node)
            self.lost[node] = why

    def ask(
        self,
        op: str,
        common: Mapping[str, Any],
        to: Mapping[str, Mapping[str, Any]] | None,
        *,
        from_each: Mapping[str, int],
        deadline_s: float,
        silent_is_lost: bool = True,
    ) -> dict[str, list[Message]]:
        """Send one request and collect the replies.

        Args:
            op: the operation.
            common: fields for every node that is asked.
            to: further fields for each node that is asked; None asks all nodes.
            from_each: how many replies each node owes.
            deadline_s: for all replies together.
            silent_is_lost: treat a node that has not replied at all by then as lost.

        Returns:
            The replies of each node in the order of arrival, errors included; a node that sent
            nothing has no entry.
        """
        self._send(op, common, to)
        replies, owed = self._collect(from_each, deadline_s)
        if silent_is_lost:
            for node in owed:
                if node not in replies:
                    self.lose(node, f'did not reply to "{op}" within {deadline_s:.0f} s')
        return replies

    def _send(
        self, op: str, common: Mapping[str, Any], to: Mapping[str, Mapping[str, Any]] | None
    ) -> None:
        self._number += 1
        request: Message = {"op": op, "id": self._number, "all": dict(common)}
        if to is not None:
            request["to"] = {node: dict(fields) for node, fields in to.items()}
        self._channel.send(request)

    def _collect(
        self, from_each: Mapping[str, int], deadline_s: float
    ) -> tuple[dict[str, list[Message]], dict[str, int]]:
        """The replies to the last request, and how many each node still owes."""
        owed = {node: count for node, count in from_each.items() if node in self.live}
        replies: dict[str, list[Message]] = {}
        end = self._clock() + deadline_s
        while owed:
            left = end - self._clock()
            if left <= 0:
                break
            received = self._channel.receive(left)
            if received is None:
                continue
            node, message = received
            if message.get("op") == "gone":
                self.lose(node, str(message.get("detail", "")) or "its agent ended")
                owed.pop(node, None)
                continue
            if message.get("id") != self._number or node not in from_each:
                continue
            replies.setdefault(node, []).append(message)
            # An error is the agent's last reply to a request.
            is_last = message.get("op") == "error"
            if node in owed:
                owed[node] -= 1
                if is_last or owed[node] <= 0:
                    del owed[node]
        return replies, owed
