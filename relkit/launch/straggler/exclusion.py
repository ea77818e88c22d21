"""Whether the node of a straggler is to leave the job, and the words for it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from relkit.errors import EXIT_CONVICTED, RelkitError
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.model import ACCUSED_FROM, Subject, Verdict
from relkit.text.foreign_json import parse_object

_TEXT_LIMIT = 500


class Excluded(RelkitError):
    """This node made the job slow, and leaves it."""

    exit_code = EXIT_CONVICTED
    next_step = (
        "Replace this node; `relkit straggler report` on node 0's timeline folder has the evidence."
    )


@dataclass(frozen=True, slots=True)
class Order:
    """What node 0 tells all nodes when one of them is to leave.

    Args:
        node: its number; why: for people, on that node and on the others.
    """

    node: int
    why: str

    def encode(self) -> bytes:
        """As a note for the store."""
        return json.dumps(asdict(self)).encode()


def decode_order(note: bytes | None) -> Order | None:
    """An order out of a note; None where it is none."""
    try:
        plain = parse_object(note or b"")
    except ValueError:
        return None
    node, why = plain.get("node"), plain.get("why")
    if not isinstance(node, int) or isinstance(node, bool) or not isinstance(why, str) or not why:
        return None
    return Order(node, why[:_TEXT_LIMIT])


@dataclass(slots=True)
class Exclusion:
    """Decides for node 0, and lets one node go at most.

    Args:
        min_nodes: fewer must not be left; nodes: how many there are.
        restarts_left: how often workers may be started again: the others lose theirs with the
            node's.
    """

    min_nodes: int
    nodes: int
    restarts_left: int = 1
    done: bool = False

    @property
    def impossible(self) -> str:
        """Why nobody can leave, whoever it is; "" where somebody can."""
        if self.nodes == 1:
            return "the job has one node"
        if self.nodes - 1 < self.min_nodes:
            return f"--nnodes asks for {self.min_nodes} nodes at least, and there are no more"
        if self.restarts_left < 1:
            return "no restart is left (--max-restarts)"
        return ""

    def decide(
        self,
        verdict: Verdict,
        node_of: Mapping[int, int],
        host_of: Mapping[int, str],
        holds_store: Callable[[int], bool],
    ) -> tuple[Order | None, str]:
        """(the order, None where nobody leaves; what is done and why).

        Args:
            verdict: that was just raised; node_of, host_of: by rank.
            holds_store: whether the job's store is in the launcher of a node.
        """
        who = who_is(verdict, host_of)
        if self.done:
            return None, "a node is leaving; nobody else is excluded before the restart"
        if self.impossible:
            return None, f"{who} is not excluded: {self.impossible}"
        if not verdict.accuses:
            return None, f"{who} is not excluded below a confidence of {ACCUSED_FROM:g}"
        accused = _nodes(verdict, node_of, host_of)
        if len(accused) != 1:
            return None, f"{who} is not excluded: it is not certain which node is at fault"
        (node,) = accused
        if holds_store(node):
            return None, f"{who} is not excluded: the rendezvous store is there"
        self.done = True
        reason = verdict.reasons[0] if verdict.reasons else str(verdict.cause)
        why = f"node {node} is asked to leave: {who}, {verdict.cause}, {reason}"
        return Order(node, why), why


def _nodes(verdict: Verdict, node_of: Mapping[int, int], host_of: Mapping[int, str]) -> set[int]:
    if verdict.subject is Subject.RANK:
        ranks = {verdict.rank}
    elif verdict.subject is Subject.HOST and len(verdict.ends) == 1:
        ranks = {rank for rank, host in host_of.items() if host == verdict.ends[0]}
    else:
        # Of a link it is not known which of its ends is ill.
        ranks = set()
    return {node_of[rank] for rank in ranks if rank in node_of}


def who_is(verdict: Verdict, host_of: Mapping[int, str]) -> str:
    """The accused in words: "rank 3 (host b)", "link a -> b", "host c"."""
    if verdict.subject is not Subject.RANK:
        return f"{verdict.subject} {' -> '.join(verdict.ends)}"
    host = host_of.get(verdict.rank, "")
    return f"rank {verdict.rank} (host {host})" if host else f"rank {verdict.rank}"


def log_line(raised: RaisedVerdict, job_id: str, host_of: Mapping[int, str]) -> str:
    """One line for the terminal about a verdict that was raised or dropped.

    Args:
        host_of: by rank.
    """
    verdict = raised.verdict
    who = who_is(verdict, host_of)
    if not raised.holds:
        return f"straggler: {who} is as fast as the others again (step {raised.ended_step})"
    slow = "its peers" if verdict.subject is Subject.RANK else "usual"
    # Never rounded up: who is not excluded because 0.9 is missed must not show 0.90.
    confidence = math.floor(100 * verdict.confidence + 1e-6) / 100
    return (
        f"straggler: {who} {verdict.cause}, {verdict.score:.0%} slower than {slow} since step "
        f"{verdict.first_step}, {_seconds(verdict.cost_s)} lost so far "
        f"(confidence {confidence:.2f}); "
        f"relkit straggler watch {job_id}"
    )


def _seconds(time_s: float) -> str:
    return f"{time_s:.2f} s" if time_s < 1.0 else f"{time_s:,.1f} s"
