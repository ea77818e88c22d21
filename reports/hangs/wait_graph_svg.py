"""Who waits for whom as an SVG of our own, for hosts without Graphviz."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.hang_picture.model import WaitGraph, WaitNode
from relkit.reports.drawing.markup import middle_cut, shown, xml
from relkit.reports.hangs.wait_graph_layout import (
    LINE,
    NODE_WIDTH,
    PAD,
    TITLE,
    Box,
    Edge,
    Placed,
    place,
)

_TITLE_COLUMNS = 17
_RING_LANE = 14


def render(graph: WaitGraph) -> str:
    """The drawing, to be put into a page; "" where there is nothing to draw.

    Args:
        graph: of at most a few dozen nodes. Everything in it is escaped here.
    """
    if not graph.nodes:
        return ""
    placed = place(graph)
    width = round(placed.width + (_RING_LANE * (len(placed.rings) + 1) if placed.rings else 0))
    height = round(placed.height)
    arrows = [_upward(edge, placed) for edge in placed.routes]
    arrows += [_ring(edge, lane, placed) for lane, edge in enumerate(placed.rings, start=1)]
    boxes = [_node(node, box) for node, box in zip(graph.nodes, placed.boxes, strict=True)]
    return (
        f'<svg class="rk-waits" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n<title>Who waits for whom</title>\n'
        f"{''.join(arrows)}{''.join(boxes)}</svg>\n"
    )


def title_of(node: WaitNode) -> str:
    """`rank 2`, `ranks 0-1,3`; a long list loses its middle."""
    names = middle_cut(node.ranks, _TITLE_COLUMNS)
    return f"{'rank' if node.count == 1 else 'ranks'} {names}"


def _words(node: WaitNode) -> str:
    """All that a node says, for whom the box is too small."""
    many = "rank" if node.count == 1 else "ranks"
    lines = [f"{many} {middle_cut(node.ranks, 600)}", *node.lines]
    return "\n".join(shown(line) for line in lines)


def _node(node: WaitNode, box: Box) -> str:
    look = "node bad" if node.culprit else "node"
    y = box.y + PAD + 12
    parts = [
        f'<g class="{look}"><title>{xml(_words(node))}</title>'
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{NODE_WIDTH}" height="{box.height:g}" rx="9"/>'
        f'<text class="who" x="{box.x + PAD:g}" y="{y:g}">{xml(shown(title_of(node)))}</text>'
    ]
    if node.count > 1:
        parts.append(
            f'<text class="count" x="{box.x + NODE_WIDTH - PAD:g}" y="{y:g}">'
            f"{node.count:,} ranks</text>"
        )
    for number, line in enumerate(box.lines):
        at = y + TITLE + 1 + number * LINE
        parts.append(f'<text x="{box.x + PAD:g}" y="{at:g}">{xml(line)}</text>')
    return f"{''.join(parts)}</g>\n"


def _upward(edge: Edge, placed: Placed) -> str:
    """From the top of who waits, through the lanes, to the bottom of whom it waits for."""
    source, target = placed.boxes[edge[0]], placed.boxes[edge[1]]
    x = _port(source, edge, [e for e in placed.routes if e[0] == edge[0]], placed, first=True)
    end_x = _port(target, edge, [e for e in placed.routes if e[1] == edge[1]], placed, first=False)
    end_y = target.y + target.height
    path, y = f"M{x:g} {source.y:g}", source.y
    for lane_x, low, high in placed.routes[edge]:
        path += _curve(x, y, lane_x, low) + f"V{high:g}"
        x, y = lane_x, high
    path += _curve(x, y, end_x, end_y + 8)
    return (
        f'<path class="edge" d="{path}"/><path class="head" d="M{end_x:g} {end_y:g}l-5 9h10z"/>\n'
    )


def _curve(x0: float, y0: float, x1: float, y1: float) -> str:
    bend = round((y0 - y1) * 0.55, 1)
    return f"C{x0:g} {y0 - bend:g} {x1:g} {y1 + bend:g} {x1:g} {y1:g}"


def _port(box: Box, edge: Edge, edges: Sequence[Edge], placed: Placed, *, first: bool) -> float:
    """Where an edge leaves or meets a box: spread over its width, in order of the other ends."""

    def towards(other: Edge) -> float:
        route = placed.routes[other]
        if route:
            return route[0 if first else -1][0]
        return placed.boxes[other[1] if first else other[0]].x + NODE_WIDTH / 2

    ordered = sorted(edges, key=lambda other: (towards(other), other))
    share = (ordered.index(edge) + 1) / (len(ordered) + 1)
    return round(box.x + NODE_WIDTH * (0.15 + 0.7 * share), 1)


def _ring(edge: Edge, lane: int, placed: Placed) -> str:
    """An edge that closes a ring: over its row, down on the right, and up into its target."""
    source, target = placed.boxes[edge[0]], placed.boxes[edge[1]]
    x0 = round(source.x + NODE_WIDTH * 0.92, 1)
    x1 = round(target.x + NODE_WIDTH * 0.94, 1)
    over = source.y - 6 - min(3 * lane, 15)
    bottom = target.y + target.height
    below = bottom + 12 + min(3 * lane, 12)
    return (
        f'<path class="edge ring" d="M{x0:g} {source.y:g}V{over:g}'
        f'H{placed.width + lane * _RING_LANE:g}V{below:g}H{x1:g}V{bottom + 8:g}"/>'
        f'<path class="head" d="M{x1:g} {bottom:g}l-5 9h10z"/>\n'
    )
