"""Whether the node of a straggler is to leave the job, and the words for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from relkit.errors import EXIT_CONVICTED, RelkitError
from relkit.straggler.live import Change
from relkit.straggler.model import Subject, Verdict

# A node that leaves costs a restart: less sure than this, and it is only said.
LEAST_CONFIDENCE = 0.9
_TEXT_LIMIT = 500


class Excluded(RelkitError):
    """This node made the job slow, and leaves it."""

    exit_code = EXIT_CONVICTED
    next_step = (
        "Replace this node; `relkit straggler report` on node 0's timeline folder has the evidence."
    )


@dataclass(slots=True)
class Exclusion:
    """Decides for node 0, and lets one node go at most.

    Args:
        least_nodes: fewer must not be left; nodes: how many there are.
    """

    least_nodes: int
    nodes: int
    done: bool = False

    def decide(self, verdict: Verdict, node_of: Mapping[int, int]) -> tuple[int, str]:
        """(node that is to leave, -1 for none; what is done and why).

        Args:
            verdict: that was just raised; node_of: rank -> node.
        """
        node = node_of.get(verdict.rank, -1)
        if self.done:
            return -1, "not excluded: a node has left already"
        if verdict.subject is not Subject.RANK or node < 0:
            return -1, "not excluded: it is not one node's fault for certain"
        if verdict.confidence < LEAST_CONFIDENCE:
            return -1, f"not excluded: below a confidence of {LEAST_CONFIDENCE:g}"
        if self.nodes - 1 < max(1, self.least_nodes):
            return -1, "not excluded: the job would have fewer nodes than --nnodes allows"
        if node == 0:
            return -1, "not excluded: node 0 holds the rendezvous, and the job would end with it"
        self.done = True
        reason = verdict.reasons[0] if verdict.reasons else str(verdict.cause)
        return node, f"node {node} is asked to leave: rank {verdict.rank} {verdict.cause}, {reason}"


def order_of(note: bytes) -> str:
    """Why this node is to leave, out of node 0's note; "" where that makes no sense."""
    try:
        plain = json.loads(note)
    except (ValueError, RecursionError):
        return ""
    why = plain.get("why") if isinstance(plain, dict) else None
    return why[:_TEXT_LIMIT] if isinstance(why, str) else ""


def spoken(change: Change, job_id: str) -> str:
    """One line for the terminal about a verdict that was raised or dropped."""
    raised = change.raised
    one = raised.verdict
    who = (
        f"rank {one.rank}" if one.subject is Subject.RANK else f"{one.subject} {'-'.join(one.ends)}"
    )
    if not change.began:
        return f"straggler: {who} is as fast as the others again (step {raised.ended_step})"
    return (
        f"straggler: {who}, {one.cause}, {one.score:.0%} slower since step {one.first_step}, "
        f"{one.cost_s:.1f} s lost so far, confidence {one.confidence:.2f} "
        f"(relkit straggler watch {job_id})"
    )
