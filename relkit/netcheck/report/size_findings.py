"""What the report says of several message sizes: a line of the table, and every edge's figures."""

from __future__ import annotations

from typing import Any

from relkit.findings import Finding, Status
from relkit.netcheck.record import plain_sizes
from relkit.netcheck.report.statistics import by_size
from relkit.netcheck.solve.outcome import Outcome


def size_findings(outcome: Outcome) -> list[Finding]:
    """One line with the medians; nothing where one size was asked for."""
    rows = by_size(outcome.edges)
    if not rows:
        return []
    pieces = [
        f"{short_size(row.size_bytes)} {row.bandwidth_gbps:.4g} Gbit/s"
        + (f" {row.latency_p50_us:.4g} us" if row.latency_p50_us else "")
        for row in rows
    ]
    round_trips = ", round trip" if any(row.latency_p50_us for row in rows) else ""
    return [
        Finding(
            "RK-NET-021",
            Status.OK,
            f"by message size (medians: bandwidth{round_trips}): {', '.join(pieces)}; "
            "the largest is judged",
        )
    ]


def size_facts(outcome: Outcome) -> dict[str, Any]:
    """For --json: medians, and the figures of each edge; empty where one size was asked for."""
    rows = by_size(outcome.edges)
    if not rows:
        return {}
    return {
        "sizes": [
            {
                "size_bytes": row.size_bytes,
                "median_gbps": float(f"{row.bandwidth_gbps:.5g}") or None,
                "latency_p50_us": float(f"{row.latency_p50_us:.5g}") or None,
                "latency_p99_us": float(f"{row.latency_p99_us:.5g}") or None,
            }
            for row in rows
        ],
        "edges_by_size": [
            {
                "source": edge.source,
                "target": edge.target,
                "round": edge.round,
                "by_size": plain_sizes(edge),
            }
            for edge in outcome.edges
            if edge.by_size
        ],
    }


def short_size(size_bytes: int) -> str:
    """In the largest unit that leaves no rest: 64K, 1M, 1000."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)
