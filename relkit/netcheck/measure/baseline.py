"""The bandwidth of each link in an earlier, good run, to compare the next one with."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

from relkit.errors import BadBundle
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure.bundle import load_any
from relkit.netcheck.model import Link


def baseline_of(result: CheckResult) -> dict[Link, float]:
    """Link -> Gbit/s: the slower of its two directions, each the median of its good edges."""
    directed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for edge in result.edges:
        if not edge.failure and edge.bandwidth_gbps > 0:
            directed[edge.source, edge.target].append(edge.bandwidth_gbps)
    slower: dict[Link, float] = {}
    for (source, target), measured in directed.items():
        link = Link.between(source, target)
        slower[link] = min(slower.get(link, float("inf")), median(measured))
    return slower


def load_baseline(path: Path) -> dict[Link, float]:
    """The baseline of a saved check.

    Args:
        path: the bundle's folder, or any of its files.

    Raises:
        BadBundle: it is not a bundle, or has no good edge.
    """
    baseline = baseline_of(load_any(path))
    if not baseline:
        raise BadBundle(f"{path} has no measured edge to serve as a baseline")
    return baseline
