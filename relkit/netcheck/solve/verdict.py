"""From edges to a verdict: what is at fault, what is inconclusive, what was never measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.netcheck.model import Edge, NetVerdict, Thresholds
from relkit.netcheck.solve.analyse import Analysis, analyse
from relkit.netcheck.solve.detection_limit import detection_limits
from relkit.netcheck.solve.wording import (
    diagnosis,
    inconclusive_alternatives,
    inconclusive_cross_switch,
    inconclusive_suspicions,
    inconclusive_unproven,
    inconclusive_whole_fleet,
)


def solve(
    edges: Sequence[Edge],
    nodes: Sequence[str],
    thresholds: Thresholds | None = None,
    groups: Mapping[str, str] | None = None,
) -> NetVerdict:
    """Judge a fleet by everything that was measured.

    Args:
        edges: of all rounds, both directions, failures included.
        nodes: all nodes of the fleet, each once, measured or not.
        thresholds: the defaults where None.
        groups: node -> switch; without it no uplink is judged.
    """
    bounds = thresholds or Thresholds()
    return verdict_of(analyse(edges, nodes, bounds, groups or {}), edges, bounds)


def verdict_of(analysis: Analysis, edges: Sequence[Edge], thresholds: Thresholds) -> NetVerdict:
    """Put an analysis into words."""
    known = set(analysis.seen.nodes)
    ours = [edge for edge in edges if edge.source in known and edge.target in known]
    tested = {edge.link for edge in ours if not edge.accused and edge.source != edge.target}
    count = len(known)
    inconclusive = [
        inconclusive_alternatives(analysis, candidate)
        for candidate in analysis.candidates
        if candidate.alternatives
    ]
    inconclusive += inconclusive_suspicions(analysis)
    if analysis.cross_switch_share < 1.0 - thresholds.slow_fraction:
        inconclusive.append(inconclusive_cross_switch(analysis))
    if analysis.common:
        inconclusive.append(inconclusive_whole_fleet(analysis, thresholds))
    elif analysis.unproven and count > 1:
        inconclusive.append(inconclusive_unproven(analysis))
    by_members = {frozenset(names): (names, text) for names, text in reversed(inconclusive)}
    return NetVerdict(
        diagnoses=tuple(
            diagnosis(analysis, candidate)
            for candidate in analysis.candidates
            if not candidate.alternatives
        ),
        inconclusive=tuple(by_members[key] for key in sorted(by_members, key=sorted)),
        tested_links=len(tested),
        possible_links=count * (count - 1) // 2,
        rounds=len({edge.round for edge in ours}),
        interference=detection_limits(analysis, thresholds.slow_fraction),
    )
