"""The tree of launchers: bounded fan-in, no circle, and a leader whoever is silent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relkit.launch.control.tree import ancestors, candidates, children, heirs, parent

NODES = st.integers(1, 3000)
FAN_INS = st.integers(2, 40)


def test_16384_nodes_are_three_steps_from_node_0_at_most() -> None:
    assert max(len(ancestors(node)) for node in range(16_384)) == 3
    assert children(0, 16_384) == range(1, 33)
    assert children(511, 16_384) == range(16_353, 16_384)
    assert not children(512, 16_384)


def test_33_nodes_all_report_to_node_0() -> None:
    assert {parent(node, 33) for node in range(1, 33)} == {0}
    assert parent(0, 33) is None


@given(NODES, FAN_INS)
def test_children_and_parents_are_the_same_tree(nodes: int, fan_in: int) -> None:
    below = {child: node for node in range(nodes) for child in children(node, nodes, fan_in)}
    assert sorted(below) == list(range(1, nodes))
    assert all(ancestors(child, fan_in)[0] == node for child, node in below.items())
    assert max((len(children(n, nodes, fan_in)) for n in range(nodes)), default=0) <= fan_in


@given(st.integers(1, 200), FAN_INS, st.sets(st.integers(0, 199)))
def test_all_that_hear_the_same_follow_the_lowest_living_heir(
    nodes: int, fan_in: int, silent: set[int]
) -> None:
    living = [node for node in range(nodes) if node not in silent]
    leading = [heir for heir in heirs(nodes, fan_in) if heir not in silent]
    for node in living:
        top = node
        while (above := parent(top, nodes, silent, fan_in)) is not None:
            assert above < top
            assert above in living
            top = above
        if leading:
            # What is below a living parent follows it, whoever that one follows.
            assert top == leading[0] or (top not in heirs(nodes, fan_in))


def test_who_skips_a_silent_parent_goes_to_the_grandparent_and_then_to_the_heirs() -> None:
    assert candidates(40, 100) == (1, 0, *range(2, 32))
    assert parent(40, 100, {1}) == 0
    assert parent(40, 100, {0, 1}) == 2
    assert parent(2, 100, {0, 1}) is None
