"""A Slurm cluster as an engine: scontrol shows, drains and resumes nodes."""

from __future__ import annotations

import re
import time

from relkit.fleet.bounded_run import output_of
from relkit.nodes.model import NodeState

_LIMIT_S = 30.0
_REASON = re.compile(r"\bReason=(.*?) \[[^@\]\s]*@([0-9T:-]+)\]")
_FIELD = re.compile(r"\b(NodeName|State)=(\S+)")


class SlurmEngine:
    """Slurm, through scontrol; draining takes an operator of the cluster."""

    name = "slurm"

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes of the configuration."""
        return read_nodes(output_of(["scontrol", "-o", "show", "node"], _LIMIT_S))

    def node(self, name: str) -> NodeState | None:
        """One of them; None if Slurm does not know it."""
        return next(
            iter(read_nodes(output_of(["scontrol", "-o", "show", "node", name], _LIMIT_S))), None
        )

    def take_out(self, node: str, reason: str) -> None:
        """Drain it: jobs that run there go on."""
        words = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]
        output_of(words, _LIMIT_S)

    def put_back(self, node: str) -> None:
        """Resume it."""
        output_of(["scontrol", "update", f"NodeName={node}", "State=RESUME"], _LIMIT_S)


def read_nodes(text: str) -> tuple[NodeState, ...]:
    """The nodes in the output of `scontrol -o show node`."""
    states = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "NodeName" not in fields:
            continue
        is_out = "DRAIN" in fields.get("State", "")
        reason = _REASON.search(line)
        since_s = _unix_s(reason[2]) if reason else 0.0
        states.append(NodeState(fields["NodeName"], is_out, reason[1] if reason else "", since_s))
    return tuple(states)


def _unix_s(text: str) -> float:
    """Slurm's time, which is local."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return 0.0
