"""Edges as arrays."""

from __future__ import annotations

from relkit.netcheck.model import Edge, Thresholds
from relkit.netcheck.solve.observations import observe


def test_only_between_two_known_switches_an_edge_crosses() -> None:
    switches = {"a": "s1", "b": "s2", "c": "s2"}
    ways = [("a", "b"), ("b", "c"), ("d", "a"), ("a", "d"), ("d", "e")]
    edges = [Edge(one, other, 0, bandwidth_gbps=10.0) for one, other in ways]
    seen = observe(edges, "abcde", Thresholds(), switches)
    assert seen.crosses.tolist() == [True, False, False, False, False]
