"""What the report says about several message sizes: a line, and the results of every edge."""

from __future__ import annotations

from typing import Any

from relkit.findings import Finding, Status
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.record import plain_sizes
from relkit.netcheck.report.statistics import by_size


def size_findings(result: CheckResult) -> list[Finding]:
    """One line with the medians; none if only one size was asked for."""
    rows = by_size(result.edges)
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
            "the largest decides the verdict",
        )
    ]


def size_facts(result: CheckResult) -> dict[str, Any]:
    """For --json: medians, and the results of each edge; empty if only one size was asked for."""
    rows = by_size(result.edges)
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
            for edge in result.edges
            if edge.by_size
        ],
    }


def short_size(size_bytes: int) -> str:
    """In the largest unit that divides it: 64K, 1M, 1000."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)
