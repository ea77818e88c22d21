"""What each link did in an earlier, good run: the measure for the next one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

from relkit.errors import BadBundle
from relkit.netcheck.measure.bundle import load_any
from relkit.netcheck.model import Link
from relkit.netcheck.solve.outcome import Outcome


def baseline_of(outcome: Outcome) -> dict[Link, float]:
    """Link -> Gbit/s: the slower of its two directions, each the median of its good edges."""
    directed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for edge in outcome.edges:
        if not edge.failure and edge.bandwidth_gbps > 0:
            directed[edge.source, edge.target].append(edge.bandwidth_gbps)
    found: dict[Link, float] = {}
    for (source, target), figures in directed.items():
        link = Link.between(source, target)
        found[link] = min(found.get(link, float("inf")), median(figures))
    return found


def load_baseline(path: Path) -> dict[Link, float]:
    """The baseline of a saved check.

    Args:
        path: the bundle's folder, or any of its files.

    Raises:
        BadBundle: it is not one, or has not one good edge.
    """
    found = baseline_of(load_any(path))
    if not found:
        raise BadBundle(f"{path} has no measured edge to serve as a baseline")
    return found
