"""What a cluster says of its nodes, what may be done to them, and for which reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from relkit.errors import RelkitError

_MAX_REASON = 160
_REASON = re.compile(r"relkit (RK-[A-Z]{2,8}-\d{3})\b")
_UNSAFE = re.compile(r"[^\w .,:;/()%+<>=-]")


class Refused(RelkitError):
    """A rule forbids what was asked for; nothing was done."""

    next_step = "relkit nodes list shows the cluster's nodes, and why some are out."


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the cluster sees it.

    Args:
        name: in the cluster.
        is_out: no new work goes there: drained, or cordoned.
        reason: why, as the cluster has it; "" for none.
        since_unix_s: since when; 0 if that is not known.
    """

    name: str
    is_out: bool
    reason: str = ""
    since_unix_s: float = 0.0

    @property
    def finding(self) -> str:
        """The id of the finding for which relkit has taken it out; "" if somebody else has."""
        match = _REASON.match(self.reason)
        return match[1] if match and self.is_out else ""


class Engine(Protocol):
    """A cluster. Each call has a deadline, and raises HelperFailed or ToolMissing."""

    name: str

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes of the cluster."""

    def take_out(self, node: str, reason: str) -> None:
        """No new work goes to this node; what runs there goes on."""

    def put_back(self, node: str) -> None:
        """New work may go there again."""


def reason_text(finding: str, title: str) -> str:
    """The reason that stands with a node in the cluster: "relkit RK-NET-002: n7 is slow ...".

    Args:
        finding: its id; title: in words, which may come from elsewhere.
    """
    text = f"relkit {finding}: {_UNSAFE.sub(' ', title)}" if title else f"relkit {finding}"
    return " ".join(text.split())[:_MAX_REASON]
