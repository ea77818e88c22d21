"""Agents behind any prefix: `ip netns exec {node}`, `docker exec -i {node}`, a site's own tool."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from relkit.errors import UsageProblem
from relkit.fleet.exit_reason import ExitReason, how_it_ended
from relkit.fleet.remote_command import NOT_THERE, local_words
from relkit.hosts import NodeSpec


class CommandCarrier:
    """One run of the prefix a node, without a shell.

    Args:
        command: split like in a shell, once; in each word `{node}` becomes the node's name and
            `{address}` its address. The agent's command follows.
        relkit: the command behind the prefix; "" for the running one.

    Raises:
        UsageProblem: an open quote, nothing at all, or no `{node}` and no `{address}`.
    """

    name = "command"

    def __init__(self, command: str, relkit: str = "") -> None:
        try:
            self._prefix = shlex.split(command)
        except ValueError as error:
            raise UsageProblem(f"--command {command!r}: {error}") from error
        if not any("{node}" in word or "{address}" in word for word in self._prefix):
            raise UsageProblem(
                f"--command {command!r} names no node",
                next_step="Put {node} where the node's name goes: 'ip netns exec {node}'.",
            )
        self._words = local_words(relkit)

    def argv(self, node: NodeSpec) -> Sequence[str]:
        """The prefix for this node, then the agent."""
        prefix = [
            word.replace("{node}", node.name).replace("{address}", node.target)
            for word in self._prefix
        ]
        return [*prefix, *self._words, "agent", f"--name={node.name}"]

    def explain(self, node: NodeSpec, code: int, complaint: str) -> ExitReason:
        """Its exit code, and the last line of its stderr."""
        ended = f"the command for it {how_it_ended(code, complaint)}"
        if code == NOT_THERE:
            ended += " (is relkit there? name it with --relkit PATH)"
        return ExitReason(ended)
