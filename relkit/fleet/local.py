"""Agents on this machine: for trying things out, and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.fleet.exit_reason import ExitReason, how_it_ended
from relkit.fleet.remote_command import local_words
from relkit.hosts import NodeSpec


class LocalCarrier:
    """One child a node.

    Args:
        relkit: the command, "" for the running one.
    """

    name = "local"

    def __init__(self, relkit: str = "") -> None:
        self._words = local_words(relkit)

    def argv(self, node: NodeSpec) -> Sequence[str]:
        """The agent itself."""
        return [*self._words, "agent", f"--name={node.name}"]

    def explain(self, node: NodeSpec, code: int, complaint: str) -> ExitReason:
        """Its exit code, and the last line of its stderr."""
        return ExitReason(f"its agent {how_it_ended(code, complaint)}")
