"""Edges as arrays."""

from __future__ import annotations

from relkit.netcheck.model import Edge, Failure, Thresholds
from relkit.netcheck.solve.components import LINK, Entity, components_of
from relkit.netcheck.solve.observations import observe


def test_an_edge_is_cross_switch_only_between_two_known_switches() -> None:
    switches = {"a": "s1", "b": "s2", "c": "s2"}
    pairs = [("a", "b"), ("b", "c"), ("d", "a"), ("a", "d"), ("d", "e")]
    edges = [Edge(source, target, 0, bandwidth_gbps=10.0) for source, target in pairs]
    seen = observe(edges, "abcde", Thresholds(), switches)
    assert seen.crosses.tolist() == [True, False, False, False, False]


def test_a_failure_that_names_its_node_says_nothing_of_the_other_end() -> None:
    dead = Edge("a", "b", 0, failure=Failure.NO_AGENT, accused="b")
    seen = observe([dead, Edge("a", "c", 0, bandwidth_gbps=10.0)], "abc", Thresholds(), {})
    parts = components_of(seen)
    assert parts.edges_of(0).tolist() == [1]
    assert parts.edges_of(1).tolist() == [0]
    assert [parts.entity(number) for number in range(9, parts.count())] == [Entity(LINK, 0, 2)] * 3
