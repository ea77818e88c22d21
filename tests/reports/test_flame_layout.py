"""Where boxes go: rare ranks get wide boxes, stacks that end in a box show, nothing overflows."""

from __future__ import annotations

import pytest

from relkit.ranks import RankSet
from relkit.reports.flames import flame_boxes
from relkit.reports.flames.flame_boxes import boxes
from relkit.reports.flames.flame_layout import (
    DIFFERENCE,
    LEAF_MIN,
    OWN_END,
    is_suspect,
    layout,
    weight,
)
from relkit.stacks.tree import StackTree
from tests.reports.trees import Stack, grow, ranks

WORLD = 8


def stack(funcs: str, on: str) -> Stack:
    """Each letter is a function, outermost first."""
    return Stack(tuple((func, f"{func}.py:1") for func in funcs), ranks(on))


def funcs(tree: StackTree) -> list[str]:
    return [box.node.func for box in boxes(tree) if box.node is not None]


def test_a_box_in_which_a_stack_ends_is_wider_than_what_goes_on_below_it() -> None:
    # The same ranks end in "f" and go on to "g": no leaf of its own shows that.
    drawn = boxes(grow("py", WORLD, [stack("mf", "0-7"), stack("mfg", "0-7")]))
    width = {box.node.func: spot.width for box, spot in zip(
        drawn, layout(drawn, 1000.0, WORLD), strict=True) if box.node}  # fmt: skip
    assert width["f"] - width["g"] == pytest.approx(OWN_END)
    assert width["m"] == pytest.approx(width["f"]) == pytest.approx(1000.0)


def test_without_an_end_a_box_is_as_wide_as_what_is_below() -> None:
    drawn = boxes(grow("py", WORLD, [stack("mfg", "0-7")]))
    assert {spot.width for spot in layout(drawn, 1000.0, WORLD)} == {1000.0}


def test_ranks_that_stop_where_others_go_on_have_a_leaf_of_their_own() -> None:
    drawn = boxes(grow("py", WORLD, [stack("mf", "0"), stack("mfg", "1-7")]))
    (own,) = [box for box in drawn if box.node and box.node.func == "(ends here)"]
    assert own.ranks == RankSet.of([0])


@pytest.mark.parametrize(("count", "suspect"), [(1, True), (3, True), (4, False), (9, False)])
def test_at_most_a_third_of_the_ranks_are_suspects(count: int, suspect: bool) -> None:
    assert is_suspect(count, 9) is suspect


def test_where_ranks_differ_weighs_more() -> None:
    assert weight(7, 8) == pytest.approx(DIFFERENCE * 3.0)
    assert weight(8, 8) == pytest.approx(3.17, abs=0.01)
    # A suspect weighs as much as all those that it is compared with.
    assert weight(1, 8) == weight(7, 8)


def test_where_many_differ_each_still_has_the_least_width() -> None:
    odd = [stack(f"m{chr(0x100 + i)}", str(i % 7)) for i in range(60)]
    common = [stack(f"m{chr(0x400 + i)}", "0-7") for i in range(2)]
    drawn = boxes(grow("py", WORLD, [*odd, *common]))
    spots = layout(drawn, 62 * LEAF_MIN, WORLD)
    leaves = [spot.width for box, spot in zip(drawn, spots, strict=True) if not box.children]
    assert len(leaves) == 62
    assert min(leaves) == pytest.approx(LEAF_MIN)


def test_the_rarest_stand_left_and_ranks_without_a_dump_before_them() -> None:
    present = RankSet.of(range(7))
    tree = grow("py", WORLD, [stack("a", "0-6"), stack("b", "3"), stack("c", "7")], present=present)
    assert funcs(tree) == ["c", "b", "a"]


def test_of_too_many_stacks_the_commonest_is_kept_to_compare_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flame_boxes, "MAX_LEAVES", 10)
    rare = [stack(f"m{chr(0x100 + i)}", str(i % 7)) for i in range(30)]
    drawn = boxes(grow("py", WORLD, [*rare, stack("mw", "0-7")]))
    kept = [box.node.func for box in drawn if box.kind == "frame" and box.node]
    assert "w" in kept
    assert len(kept) == 1 + 10
    (more,) = [box for box in drawn if box.kind == "more"]
    assert more.count == 21


def test_a_picture_beyond_its_budget_leaves_boxes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flame_boxes, "NODES_BUDGET_BYTES", 5_000)
    tree = grow("py", WORLD, [stack(f"m{chr(0x100 + i)}", str(i % 7)) for i in range(30)])
    drawn = boxes(tree)
    assert len(drawn) < 15
    (more,) = [box for box in drawn if box.kind == "more"]
    leaves = [box for box in drawn if box.kind == "frame" and not box.children]
    assert more.count == 30 - len(leaves)
