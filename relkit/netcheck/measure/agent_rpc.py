"""Asking every agent at once and waiting for each no longer than it was promised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relkit.fleet.channel import Channel

Message = dict[str, Any]


class Talk:
    """One conversation with a fleet: numbered requests, late replies dropped, deaths noted.

    Args:
        channel: started already.
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
        """From now on this node is not asked any more."""
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
            to: further fields by node, which also says who is asked; None asks all.
            from_each: how many replies each node owes.
            deadline_s: how long all of them together have.
            silent_is_lost: a node that still owes its first reply then is lost.

        Returns:
            The replies by node, errors included, in the order of arrival; a node that said
            nothing has no entry.
        """
        self._number += 1
        number = self._number
        request: Message = {"op": op, "id": number, "all": dict(common)}
        if to is not None:
            request["to"] = {node: dict(fields) for node, fields in to.items()}
        self._channel.send(request)
        owed = {node: count for node, count in from_each.items() if node in self.live}
        replies: dict[str, list[Message]] = {}
        end = self._clock() + deadline_s
        while owed:
            left = end - self._clock()
            if left <= 0:
                break
            heard = self._channel.receive(left)
            if heard is None:
                continue
            node, message = heard
            if message.get("op") == "gone":
                self.lose(node, str(message.get("detail", "")) or "its agent ended")
                owed.pop(node, None)
                continue
            if message.get("id") != number or node not in from_each:
                continue
            replies.setdefault(node, []).append(message)
            # An error ends what the node had to say; the agent sends nothing after it.
            done = message.get("op") == "error"
            if node in owed:
                owed[node] -= 1
                if done or owed[node] <= 0:
                    del owed[node]
        if silent_is_lost:
            for node in owed:
                if node not in replies:
                    self.lose(node, f'said nothing for {deadline_s:.0f} s when asked for "{op}"')
        return replies
