"""Where the boxes and arrows of a graph of waits go: layers, those at fault on top.

An arrow that passes a layer has a lane of its own there, so that none runs behind a box.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.hang_picture.model import WaitGraph, WaitNode
from relkit.reports.drawing.markup import end_cut, shown

NODE_WIDTH = 266
PER_ROW = 4
MAX_WRAPPED = 5
COLUMNS = 37
PAD, LINE, TITLE = 13, 17, 19
_LANE_WIDTH, _GAP, _ROW_GAP, _LAYER_GAP, _EDGE = 10, 20, 34, 58, 2
# Room above and below for arrows that close a ring.
_RING_ROOM = 26

Edge = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """One node where it is drawn; its width is NODE_WIDTH.

    Args:
        x, y, height: of its frame.
        lines: its text below the title.
    """

    x: float
    y: float
    height: float
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A graph with all places.

    Args:
        boxes: by number of the node.
        routes: of each edge that leads upwards, where it passes a layer: x, lower and upper y.
        rings: the edges that close a ring, and lead down.
        width, height: of the drawing, without what rings need on the right.
    """

    boxes: tuple[Box, ...]
    routes: Mapping[Edge, tuple[tuple[float, float, float], ...]]
    rings: tuple[Edge, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Item:
    """A node, or the lane of an edge, in one row."""

    node: int = -1
    edge: Edge = (-1, -1)

    @property
    def width(self) -> int:
        return NODE_WIDTH if self.node >= 0 else _LANE_WIDTH


def place(graph: WaitGraph) -> Placed:
    """Where everything goes.

    Args:
        graph: of at least one and at most a few dozen nodes.
    """
    layers = layers_of(graph)
    rings = tuple(e for e in graph.edges if layers[e[0]] <= layers[e[1]])
    upward = [edge for edge in graph.edges if edge not in rings]
    rows = _rows(graph, layers, upward)
    lefts = _lefts(rows)
    boxes: dict[int, Box] = {}
    passes: dict[Edge, list[tuple[float, float, float]]] = {edge: [] for edge in upward}
    y = float(_RING_ROOM if rings else _EDGE / 2)
    for number, row in enumerate(rows):
        if number:
            y += _gap_above(row, rows[number - 1], layers)
        lines = {item.node: _wrapped(graph.nodes[item.node]) for item in row if item.node >= 0}
        height = max(2 * PAD + TITLE + LINE * len(text) - 3 for text in lines.values())
        for item, x in zip(row, lefts[number], strict=True):
            if item.node >= 0:
                boxes[item.node] = Box(x, y, height, lines[item.node])
            else:
                passes[item.edge].insert(0, (x + _LANE_WIDTH / 2, y + height, y))
        y += height
    return Placed(
        boxes=tuple(boxes[i] for i in range(len(graph.nodes))),
        routes={edge: tuple(points) for edge, points in passes.items()},
        rings=rings,
        width=max(left[-1] + row[-1].width for row, left in zip(rows, lefts, strict=True))
        + _EDGE / 2,
        height=y + (_RING_ROOM if rings else _EDGE / 2),
    )


def layers_of(graph: WaitGraph) -> list[int]:
    """A layer for each node, below all that it waits for, as far as no ring is in the way.

    Edges count in the order of how close their target is to somebody who waits for nobody; one
    that would close a ring, or leads away from those at fault, does not count.
    """
    above: dict[int, list[int]] = {i: [] for i in range(len(graph.nodes))}
    for source, target in sorted(graph.edges, key=lambda e: (graph.nodes[e[1]].layer, e)):
        if not graph.nodes[source].culprit and not _leads_to(above, target, source):
            above[source].append(target)
    layers: dict[int, int] = {}
    while len(layers) < len(graph.nodes):
        for i, targets in above.items():
            if i not in layers and all(target in layers for target in targets):
                layers[i] = 1 + max((layers[target] for target in targets), default=-1)
    return [layers[i] for i in range(len(graph.nodes))]


def _leads_to(above: Mapping[int, Sequence[int]], start: int, end: int) -> bool:
    seen, ahead = {start}, [start]
    while ahead:
        node = ahead.pop()
        if node == end:
            return True
        ahead += [target for target in above[node] if target not in seen]
        seen.update(above[node])
    return False


def _rows(graph: WaitGraph, layers: Sequence[int], upward: Sequence[Edge]) -> list[list[_Item]]:
    """The nodes of each layer in rows of at most PER_ROW, with the lanes of what passes them."""
    rows: list[list[_Item]] = []
    row_of: dict[int, int] = {}
    for layer in sorted(set(layers)):
        members = [i for i in range(len(graph.nodes)) if layers[i] == layer]
        for start in range(0, len(members), PER_ROW):
            part = members[start : start + PER_ROW]
            row_of |= dict.fromkeys(part, len(rows))
            rows.append([_Item(node) for node in part])
    for source, target in upward:
        for number in range(row_of[target] + 1, row_of[source]):
            rows[number].append(_Item(edge=(source, target)))
    return [_ordered(row, rows[:number], upward, row_of) for number, row in enumerate(rows)]


def _ordered(
    row: list[_Item],
    above: Sequence[list[_Item]],
    upward: Sequence[Edge],
    row_of: Mapping[int, int],
) -> list[_Item]:
    """A row near what it leads to: by the mean place of that in the rows above.

    Sorts in place, so that the rows below see the order.
    """
    if above:
        share = {
            item: (column + 0.5) / len(upper)
            for upper in above
            for column, item in enumerate(upper)
        }

        def middle(item: _Item) -> float:
            edges = [item.edge] if item.node < 0 else [e for e in upward if e[0] == item.node]
            ends = []
            for edge in edges:
                # The lane in the row above, where the edge passes that, else its target.
                lane = share.get(_Item(edge=edge)) if edge in _lanes(above[-1]) else None
                ends.append(share[_Item(edge[1])] if lane is None else lane)
            return sum(ends) / len(ends) if ends else 0.5

        places = {item: (middle(item), item.node < 0, item.node, item.edge) for item in row}
        row.sort(key=lambda item: places[item])
    return row


def _lanes(row: Sequence[_Item]) -> set[Edge]:
    return {item.edge for item in row if item.node < 0}


def _lefts(rows: Sequence[Sequence[_Item]]) -> list[list[float]]:
    """The left side of each item; rows are centred."""
    widths = [sum(item.width for item in row) + _GAP * (len(row) - 1) for row in rows]
    lefts = []
    for row, width in zip(rows, widths, strict=True):
        x = (max(widths) - width) / 2 + _EDGE / 2
        places = []
        for item in row:
            places.append(x)
            x += item.width + _GAP
        lefts.append(places)
    return lefts


def _gap_above(row: Sequence[_Item], upper: Sequence[_Item], layers: Sequence[int]) -> int:
    first, other = (next(i.node for i in items if i.node >= 0) for items in (row, upper))
    return _ROW_GAP if layers[first] == layers[other] else _LAYER_GAP


def _wrapped(node: WaitNode) -> tuple[str, ...]:
    lines: list[str] = []
    for line in node.lines:
        lines += textwrap.wrap(shown(line), COLUMNS) or [""]
    if len(lines) > MAX_WRAPPED:
        lines = [*lines[: MAX_WRAPPED - 1], f"{lines[MAX_WRAPPED - 1]} …"]
    return tuple(end_cut(line, COLUMNS + 2) for line in lines)
