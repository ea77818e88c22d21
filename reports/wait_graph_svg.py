"""Who waits for whom as an SVG of our own: layers of boxes, those at fault on top."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.picture.model import WaitGraph, WaitNode
from relkit.reports.markup import end_cut, middle_cut, shown, xml

NODE_WIDTH = 266
PER_ROW = 4
MAX_WRAPPED = 5
_GAP, _ROW_GAP, _LAYER_GAP = 25, 26, 58
_PAD, _LINE, _TITLE = 13, 17, 19
_COLUMNS = 37
_TITLE_COLUMNS = 23
_LANE = 14


@dataclass(frozen=True, slots=True)
class Box:
    """One node where it is drawn.

    Args:
        x, y, height: of its frame; its width is NODE_WIDTH.
        row, column: its place in the drawing.
        lines: its text below the title.
    """

    x: float
    y: float
    height: float
    row: int
    column: int
    lines: tuple[str, ...]


def render(graph: WaitGraph) -> str:
    """The drawing, to be put into a page; "" where there is nothing to draw.

    Args:
        graph: of at most a few dozen nodes. Everything in it is escaped here.
    """
    if not graph.nodes:
        return ""
    boxes = layout(graph)
    lanes = sum(not _is_upward(boxes, edge) and not _is_short(boxes, edge) for edge in graph.edges)
    right = max(box.x + NODE_WIDTH for box in boxes)
    width = round(right + 2 + (_LANE * (lanes + 1) if lanes else 0))
    height = round(max(box.y + box.height for box in boxes) + 2)
    # What is drawn later lies above: boxes hide the edges that pass behind them.
    return (
        f'<svg class="rk-waits" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n<title>Who waits for whom</title>\n'
        f"{_edges(graph, boxes, right)}"
        f"{''.join(_node(n, b) for n, b in zip(graph.nodes, boxes, strict=True))}</svg>\n"
    )


def layout(graph: WaitGraph) -> list[Box]:
    """Where each node stands: a layer below those that it waits for, near them."""
    rows = _rows(graph)
    widest = max(len(row) for row in rows)
    boxes: dict[int, Box] = {}
    y, layer = 1.0, 0
    for number, row in enumerate(rows):
        lines = {i: _wrapped(graph.nodes[i]) for i in row}
        height = max(2 * _PAD + _TITLE + _LINE * len(lines[i]) - 3 for i in row)
        start = (widest - len(row)) * (NODE_WIDTH + _GAP) / 2 + 1
        if number:
            y += _LAYER_GAP if graph.nodes[row[0]].layer != layer else _ROW_GAP
        layer = graph.nodes[row[0]].layer
        for column, i in enumerate(row):
            x = start + column * (NODE_WIDTH + _GAP)
            boxes[i] = Box(x, y, height, number, column, lines[i])
        y += height
    return [boxes[i] for i in range(len(graph.nodes))]


def _rows(graph: WaitGraph) -> list[list[int]]:
    """The nodes of each layer, in rows of at most PER_ROW."""
    targets: dict[int, list[int]] = {}
    for source, target in graph.edges:
        targets.setdefault(source, []).append(target)
    rows: list[list[int]] = []
    place: dict[int, float] = {}
    for layer in sorted({node.layer for node in graph.nodes}):
        members = [i for i, node in enumerate(graph.nodes) if node.layer == layer]
        members.sort(key=lambda i: (_middle(targets.get(i, ()), place), i))
        for start in range(0, len(members), PER_ROW):
            row = members[start : start + PER_ROW]
            place |= {i: column - len(row) / 2 for column, i in enumerate(row)}
            rows.append(row)
    return rows


def _middle(targets: Sequence[int], place: Mapping[int, float]) -> float:
    known = [place[target] for target in targets if target in place]
    return sum(known) / len(known) if known else 0.0


def _wrapped(node: WaitNode) -> tuple[str, ...]:
    lines: list[str] = []
    for line in node.lines:
        lines += textwrap.wrap(shown(line), _COLUMNS) or [""]
    if len(lines) > MAX_WRAPPED:
        lines = [*lines[: MAX_WRAPPED - 1], f"{lines[MAX_WRAPPED - 1]} …"]
    return tuple(end_cut(line, _COLUMNS + 2) for line in lines)


def title_of(node: WaitNode) -> str:
    """`rank 2`, `ranks 0-1,3`; a long list loses its middle."""
    names = middle_cut(node.ranks, _TITLE_COLUMNS - 6)
    return f"{'rank' if node.count == 1 else 'ranks'} {names}"


def words_of(node: WaitNode) -> str:
    """All that a node says, for whom the box is too small."""
    many = "rank" if node.count == 1 else "ranks"
    return "\n".join([f"{many} {middle_cut(node.ranks, 600)}", *node.lines])


def _node(node: WaitNode, box: Box) -> str:
    look = "node bad" if node.culprit else "node"
    parts = [
        f'<g class="{look}"><title>{xml(words_of(node))}</title>'
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{NODE_WIDTH}" height="{box.height:g}" rx="9"/>'
    ]
    y = box.y + _PAD + 12
    parts.append(
        f'<text class="who" x="{box.x + _PAD:g}" y="{y:g}">{xml(shown(title_of(node)))}</text>'
    )
    if node.count > 1:
        parts.append(
            f'<text class="count" x="{box.x + NODE_WIDTH - _PAD:g}" y="{y:g}">'
            f"{node.count:,} ranks</text>"
        )
    for number, line in enumerate(box.lines):
        at = y + _TITLE + 1 + number * _LINE
        parts.append(f'<text x="{box.x + _PAD:g}" y="{at:g}">{xml(line)}</text>')
    return f"{''.join(parts)}</g>\n"


def _is_upward(boxes: Sequence[Box], edge: tuple[int, int]) -> bool:
    return boxes[edge[0]].row > boxes[edge[1]].row


def _is_short(boxes: Sequence[Box], edge: tuple[int, int]) -> bool:
    """Between neighbours of one row."""
    source, target = boxes[edge[0]], boxes[edge[1]]
    return source.row == target.row and abs(source.column - target.column) == 1


def _edges(graph: WaitGraph, boxes: Sequence[Box], right: float) -> str:
    upward = [edge for edge in graph.edges if _is_upward(boxes, edge)]
    parts = [_upward(edge, upward, boxes) for edge in upward]
    lane = 0
    for edge in graph.edges:
        if edge in upward:
            continue
        if _is_short(boxes, edge):
            parts.append(_sideways(boxes[edge[0]], boxes[edge[1]]))
        else:
            lane += 1
            parts.append(_around(boxes[edge[0]], boxes[edge[1]], right + lane * _LANE))
    return "".join(parts)


def _upward(edge: tuple[int, int], upward: Sequence[tuple[int, int]], boxes: Sequence[Box]) -> str:
    source, target = boxes[edge[0]], boxes[edge[1]]
    x0 = _port(source, [t for s, t in upward if s == edge[0]], edge[1], boxes)
    x1 = _port(target, [s for s, t in upward if t == edge[1]], edge[0], boxes)
    y0, y1 = source.y, target.y + target.height + 8
    bend = (y0 - y1) * 0.55
    return (
        f'<path class="edge" d="M{x0:g} {y0:g}C{x0:g} {y0 - bend:g} {x1:g} {y1 + bend:g} '
        f'{x1:g} {y1:g}"/><path class="head" d="M{x1:g} {y1 - 8:g}l-5 9h10z"/>\n'
    )


def _port(box: Box, others: Sequence[int], other: int, boxes: Sequence[Box]) -> float:
    """Where an edge leaves or meets a box: spread over its width, in order of the other ends."""
    ordered = sorted(others, key=lambda i: (boxes[i].x, i))
    share = (ordered.index(other) + 1) / (len(ordered) + 1)
    return round(box.x + NODE_WIDTH * (0.2 + 0.6 * share), 1)


def _sideways(source: Box, target: Box) -> str:
    goes_right = source.column < target.column
    # The two of a pair that waits for each other keep apart.
    y = round(source.y + min(source.height, target.height) / 2 + (-8 if goes_right else 8), 1)
    x0 = source.x + NODE_WIDTH if goes_right else source.x
    x1 = target.x - 8 if goes_right else target.x + NODE_WIDTH + 8
    tip = "l-9 -5v10z" if goes_right else "l9 -5v10z"
    end = x1 + 8 if goes_right else x1 - 8
    return (
        f'<path class="edge" d="M{x0:g} {y:g}H{x1:g}"/>'
        f'<path class="head" d="M{end:g} {y:g}{tip}"/>\n'
    )


def _around(source: Box, target: Box, lane: float) -> str:
    y0 = round(source.y + source.height * 0.62, 1)
    y1 = round(target.y + target.height * 0.38, 1)
    x0, x1 = source.x + NODE_WIDTH, target.x + NODE_WIDTH
    return (
        f'<path class="edge round" d="M{x0:g} {y0:g}H{lane:g}V{y1:g}H{x1 + 8:g}"/>'
        f'<path class="head" d="M{x1:g} {y1:g}l9 -5v10z"/>\n'
    )
