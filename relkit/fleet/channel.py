"""The one shape in which relkit reaches many nodes, whatever carries the bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relkit.hosts import NodeSpec

GONE = "gone"
"""The op of the one message about an agent's end; its "detail" has the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of reaching one node.

    Args:
        node: the name that the user gave it.
        answered: its agent runs and speaks our protocol. False is "unknown", never "healthy".
        detail: why not, in words for a person; "" where it answered.
        hello: the agent's first message, as docs/fleet.md lists it; empty where none came.
        clock_skew_s: node clock minus ours, taken by one ping after all hellos, so no better than
            half a round trip; 0.0 where the ping was not answered within a second.
        host_down: the transport reports that the machine itself is down: dead, not only unknown.
            A refused key or a missing relkit does not mean that.
    """

    node: str
    answered: bool
    detail: str = ""
    hello: Mapping[str, Any] = field(default_factory=dict)
    clock_skew_s: float = 0.0
    host_down: bool = False


class Channel(Protocol):
    """Agents on many nodes: one message to all, tagged messages from each.

    A channel is used once, by one thread: start, then send and receive, then close (always).
    """

    name: str

    def start(self, nodes: Sequence[NodeSpec], deadline_s: float) -> Mapping[str, Answer]:
        """Start an agent on every node, and wait for their hellos.

        Args:
            nodes: to reach.
            deadline_s: the longest that this may take, whatever the number of silent nodes, s.

        Returns:
            One answer a node, by name and in the order given. A dead node is an answer too.

        Raises:
            ToolMissing: the one program that carries all agents (srun) is not installed here.
                Where each node has a process of its own, that is each node's answer instead.
        """
        ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Broadcast one message; an agent acts when "to" is absent or has its name.

        A node whose pipe stays full becomes "gone"; the others are not held up by it for long.
        """
        ...

    def receive(self, timeout_s: float) -> tuple[str, dict[str, Any]] | None:
        """The next message of any agent, as (node, message); None when the time is up.

        An agent that ends, or sends an invalid message, gives {"op": "gone", "detail": why}
        once, after all of its earlier messages.
        """
        ...

    def close(self, deadline_s: float) -> None:
        """End all agents: end of file first, signals for those that stay. Safe to call twice."""
        ...
