"""Where each box of a stack picture goes. templates/flame.js does the same after a zoom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relkit.reports.flame_boxes import Box

ROW = 21.0
FOLD_ROW = 15.0
LEAF_MIN = 24.0
SUSPECT_MIN = 150.0
SUSPECT_SHARE = 0.45
OWN_END = 10.0
"""Free width beside a box's children that shows that stacks end in the box itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """A box's rectangle in CSS pixels; zero height for a hidden one."""

    x: float
    y: float
    width: float
    height: float


def is_suspect(count: int, present: int) -> bool:
    """So few ranks that the box deserves room for its name: at most a third of those read."""
    return count * 3 <= present


def layout(boxes: Sequence[Box], width: float, present: int) -> list[Place]:
    """Every box's place, root on top, in a picture of this width.

    One stack is one column: at least LEAF_MIN wide while that fits, wider for suspects, the rest
    shared by log2(1 + ranks). So one rank in 100,000 is as easy to see as the 99,999.
    """
    counts = [len(box.ranks) for box in boxes]
    leaf_width, gap = _leaf_widths(boxes, counts, width, present)
    widths = [0.0] * len(boxes)
    for i in range(len(boxes) - 1, -1, -1):
        if not boxes[i].children:
            widths[i] = leaf_width[i]
        elif ends_here(boxes[i]):
            widths[i] += gap
        if boxes[i].parent >= 0:
            widths[boxes[i].parent] += widths[i]
    places: list[Place] = []
    cursor = [0.0] * (len(boxes) + 1)
    for i, box in enumerate(boxes):
        x = cursor[box.parent]
        above = places[box.parent] if box.parent >= 0 else None
        y = above.y + above.height if above else 0.0
        height = 0.0 if box.hidden else FOLD_ROW if box.kind == "fold" else ROW
        places.append(Place(x, y, widths[i], height))
        cursor[box.parent] = x + widths[i]
        cursor[i] = x
    return places


def ends_here(box: Box) -> bool:
    """Some stack ends in this box although others go on below it."""
    return (
        bool(box.children) and box.kind in ("frame", "inner") and bool(box.node and box.node.ends)
    )


def _leaf_widths(
    boxes: Sequence[Box], counts: Sequence[int], width: float, present: int
) -> tuple[dict[int, float], float]:
    leaves = [i for i, box in enumerate(boxes) if not box.children]
    suspects = {i for i in leaves if boxes[i].kind != "more" and is_suspect(counts[i], present)}
    gaps = sum(1 for box in boxes if ends_here(box))
    gap = min(OWN_END, width / 4 / gaps) if gaps else 0.0
    room = width - gap * gaps
    others = len(leaves) - len(suspects)
    wide = least = 0.0
    if suspects:
        share = SUSPECT_SHARE if others else 1.0
        wide = min(SUSPECT_MIN, share * room / len(suspects))
    if others:
        least = min(LEAF_MIN, (room - wide * len(suspects)) / others)
    if others and wide < least:
        wide = least = min(LEAF_MIN, room / len(leaves))
    spare = max(0.0, room - wide * len(suspects) - least * others)
    weights = {i: math.log2(1 + counts[i]) for i in leaves}
    total = sum(weights.values()) or 1.0
    return {i: (wide if i in suspects else least) + spare * weights[i] / total for i in leaves}, gap
