"""Where each box of a stack picture goes. templates/flame_place.js does the same after a zoom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relkit.reports.flames.flame_boxes import Box

ROW = 21.0
FOLD_ROW = 15.0
LEAF_MIN = 24.0
ODD_MIN = 150.0
ODD_SHARE = 0.6
DIFFERENCE = 1.5
OWN_END = 10.0
"""Free width beside a box's children that shows that stacks end in the box itself."""


@dataclass(frozen=True, slots=True)
class BoxRect:
    """A box's rectangle in CSS pixels; zero height for a hidden one."""

    x: float
    y: float
    width: float
    height: float


def is_suspect(count: int, present: int) -> bool:
    """So few ranks that they are the likely cause: at most a third of those read."""
    return count * 3 <= present


def is_odd(box: Box, present: int) -> bool:
    """Where ranks differ: not all of them are here, or none of these was read."""
    return box.absent or (box.kind != "more" and box.size < present)


def weight(count: int, present: int) -> float:
    """A stack's share of the width that is left over: log2(1 + ranks).

    Where ranks differ is what the reader came for: such stacks weigh DIFFERENCE times as much,
    and the few ranks of a suspect weigh as much as the many that it is to be compared with.
    """
    if is_suspect(count, present):
        count = max(count, present - 1)
    return math.log2(1 + count) * (DIFFERENCE if count < present else 1.0)


def layout(boxes: Sequence[Box], width: float, present: int) -> list[BoxRect]:
    """Every box's place, root on top, in a picture of this width.

    One stack is one column: at least LEAF_MIN wide while that fits, ODD_MIN where ranks differ,
    the rest shared by weight. So one rank in 100,000 is as easy to see as the 99,999.
    """
    counts = [box.size for box in boxes]
    leaf_width, gap = _leaf_widths(boxes, counts, width, present)
    widths = [0.0] * len(boxes)
    for i in range(len(boxes) - 1, -1, -1):
        if not boxes[i].children:
            widths[i] = leaf_width[i]
        elif ends_here(boxes[i]):
            widths[i] += gap
        if boxes[i].parent >= 0:
            widths[boxes[i].parent] += widths[i]
    places: list[BoxRect] = []
    cursor = [0.0] * (len(boxes) + 1)
    for i, box in enumerate(boxes):
        x = cursor[box.parent]
        above = places[box.parent] if box.parent >= 0 else None
        y = above.y + above.height if above else 0.0
        height = 0.0 if box.hidden else FOLD_ROW if box.kind == "fold" else ROW
        places.append(BoxRect(x, y, widths[i], height))
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
    odd = {i for i in leaves if is_odd(boxes[i], present)}
    gaps = sum(1 for box in boxes if ends_here(box))
    gap = min(OWN_END, width / 4 / gaps) if gaps else 0.0
    room = width - gap * gaps
    others = len(leaves) - len(odd)
    wide = least = 0.0
    if odd:
        wide = min(ODD_MIN, (ODD_SHARE if others else 1.0) * room / len(odd))
    if others:
        least = min(LEAF_MIN, (room - wide * len(odd)) / others)
    if odd and wide < least:
        wide = least = min(LEAF_MIN, room / len(leaves))
    spare = max(0.0, room - wide * len(odd) - least * others)
    weights = {i: weight(counts[i], present) for i in leaves}
    total = sum(weights.values()) or 1.0
    return {i: (wide if i in odd else least) + spare * weights[i] / total for i in leaves}, gap
