"""The boxes of a picture: every stack is drawn, or counted in a box that says so."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.reports.drawing.palette import END_FUNC
from relkit.reports.flames import flame_boxes
from relkit.reports.flames.flame_boxes import Box, boxes
from tests.reports.trees import Stack, grow

FRAMES = [(name, "/a.c:1") for name in "abcd"]
stacks = st.dictionaries(
    st.lists(st.sampled_from(FRAMES), min_size=1, max_size=3).map(tuple),
    st.sets(st.integers(0, 3), min_size=1).map(RankSet.of),
    min_size=25,
    max_size=40,
)


def draws_a_stack(box: Box) -> bool:
    """It is where a stack ends, and no box below it says that of the ranks that end there."""
    node = box.node
    if node is None or box.kind not in ("frame", "inner"):
        return False
    goes_on = RankSet.union(child.ranks for child in node.children)
    return node.func == END_FUNC or (node.ends and not node.ranks - goes_on) or not node.children


@given(stacks, st.integers(10, 15))
def test_what_is_drawn_and_what_is_counted_are_all_stacks(
    ranks_of: dict[tuple[tuple[str, str], ...], RankSet], most: int
) -> None:
    tree = grow("py", 4, [Stack(frames, ranks) for frames, ranks in ranks_of.items()])
    with patch.object(flame_boxes, "MAX_LEAVES", most):
        made = boxes(tree)
    counted = sum(box.count for box in made if box.kind == "more")
    assert sum(map(draws_a_stack, made)) + counted == len(ranks_of)
