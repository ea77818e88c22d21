"""Rank order -> Report."""

from __future__ import annotations

import time
from collections.abc import Sequence

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.topology import RankOrder

_HOW = "adjacent ranks on different switches"


def topology_report(
    order: RankOrder,
    warnings: Sequence[str] = (),
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
) -> Report:
    """The report of one sorting.

    Args:
        order: of rank_order().
        warnings: of the files that were read.
        argv: the command line; started: Unix time, s.
    """
    saved = order.before.asw - order.after.asw
    findings = [_order_finding(order, saved)]
    if order.unknown:
        findings.append(
            Finding(
                "RK-TOP-002",
                Status.WARN,
                f"{len(order.unknown)} nodes are not in the topology file and come last",
                nodes=fold(order.unknown),
                advice="Add them to the file under the same names or addresses.",
            )
        )
    findings += [Finding("RK-TOP-003", Status.WARN, warning) for warning in warnings]
    return Report(
        "topology",
        tuple(findings),
        {
            "order": list(order.nodes),
            "unknown": list(order.unknown),
            "crossings": {
                "before": {"asw": order.before.asw, "psw": order.before.psw},
                "after": {"asw": order.after.asw, "psw": order.after.psw},
                "saved": {"asw": saved, "psw": order.before.psw - order.after.psw},
            },
        },
        started=time.time() if started is None else started,
        duration_s=0.0 if started is None else time.time() - started,
        argv=tuple(argv),
    )


def _order_finding(order: RankOrder, saved: int) -> Finding:
    crossings = (
        ("access", "as given", order.before.asw),
        ("access", "in this order", order.after.asw),
        ("upper", "as given", order.before.psw),
        ("upper", "in this order", order.after.psw),
    )
    return Finding(
        "RK-TOP-001",
        Status.OK,
        f"{len(order.nodes)} nodes in order; {saved} switch crossings saved",
        evidence=tuple(
            Evidence(f"{kind} switch crossings, {when}", count, how=_HOW)
            for kind, when, count in crossings
        ),
    )
