"""Whether one node passes the network check together with a few others: the test after a repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from relkit.findings import Evidence, Finding, Status
from relkit.netcheck.check_result import CheckResult, is_down
from relkit.netcheck.model import NetVerdict

PARTNERS = 5
_MIN_GOOD_PARTNERS = 2
Named = TypeVar("Named")


def with_partners(names: Sequence[str], node: str, nodes: Sequence[Named]) -> tuple[Named, ...]:
    """The node and up to five others, spread over the list.

    Args:
        names: of all nodes; node: one of them; nodes: in the same order as names.
    """
    own = names.index(node)
    others = [number for number in range(len(names)) if number != own]
    step = max(1, len(others) / PARTNERS)
    chosen = {others[int(place * step)] for place in range(min(PARTNERS, len(others)))} | {own}
    return tuple(nodes[number] for number in sorted(chosen))


def retest_finding(result: CheckResult, verdict: NetVerdict, node: str) -> Finding:
    """Passed, failed, or not known: a test that proves nothing puts no node back.

    Args:
        result: of a check of the node and its partners; verdict: of judge; node: its name.
    """
    facts = next((item for item in result.facts if item.name == node), None)
    blamed = [item for item in verdict.diagnoses if node in item.nodes]
    doubts = [text for names, text in verdict.inconclusive if node in names]
    good = {
        edge.target
        for edge in result.edges
        if edge.source == node and not edge.failure and edge.bandwidth_gbps > 0
    }
    partners = Evidence("partners that it reached", len(good), "", _MIN_GOOD_PARTNERS, "edges")
    status, title = Status.OK, f"{node} passes the network check"
    reasons: tuple[str, ...] = ()
    if blamed or (facts is not None and is_down(facts)):
        status, title = Status.FAIL, f"{node} does not pass the network check"
        reasons = tuple(f"{item.name} is {item.fault}" for item in blamed) or ("it is down",)
    elif facts is None or not facts.answered or len(good) < _MIN_GOOD_PARTNERS or doubts:
        status, title = Status.UNKNOWN, f"whether {node} is in order is not known"
        reasons = tuple(doubts) or ("it did not answer, or met too few nodes that are in order",)
    return Finding(
        id="RK-NET-027",
        status=status,
        title=title,
        nodes=node,
        reasons=reasons,
        evidence=(partners,),
        advice="" if status is Status.OK else "Leave it out, and test it again after a repair.",
    )
