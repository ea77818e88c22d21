"""From edges to a verdict: who is convicted, what stays open, what was never looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.netcheck.model import Edge, NetVerdict, Thresholds
from relkit.netcheck.solve.analyse import Analysis, analyse
from relkit.netcheck.solve.detection_limit import what_hiccups_hide
from relkit.netcheck.solve.wording import (
    conviction,
    undecided_across,
    undecided_common,
    undecided_rivals,
    undecided_suspicions,
    undecided_unproven,
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


def verdict_of(found: Analysis, edges: Sequence[Edge], thresholds: Thresholds) -> NetVerdict:
    """Put an analysis into words."""
    known = set(found.seen.nodes)
    ours = [edge for edge in edges if edge.source in known and edge.target in known]
    tested = {edge.link for edge in ours if not edge.accused and edge.source != edge.target}
    count = len(known)
    open_sets = [undecided_rivals(found, charge) for charge in found.charges if charge.rivals]
    open_sets += undecided_suspicions(found)
    if found.across < 1.0 - thresholds.slow_fraction:
        open_sets.append(undecided_across(found))
    if found.common:
        open_sets.append(undecided_common(found, thresholds))
    elif found.unproven and count > 1:
        open_sets.append(undecided_unproven(found))
    merged = {frozenset(names): (names, sentence) for names, sentence in reversed(open_sets)}
    return NetVerdict(
        convictions=tuple(
            conviction(found, charge) for charge in found.charges if not charge.rivals
        ),
        undecided=tuple(merged[key] for key in sorted(merged, key=sorted)),
        tested_links=len(tested),
        possible_links=count * (count - 1) // 2,
        rounds=len({edge.round for edge in ours}),
        interference=what_hiccups_hide(found, thresholds.slow_fraction),
    )
