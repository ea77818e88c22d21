"""Who waits for whom as a Graphviz graph, for hosts that have `dot`."""

from __future__ import annotations

import textwrap

import graphviz

from relkit.hang_picture.model import WaitGraph, WaitNode
from relkit.reports.drawing.markup import shown
from relkit.reports.hangs.wait_graph_layout import MAX_WRAPPED
from relkit.reports.hangs.wait_graph_svg import title_of

_COLUMNS = 40
_RED = "#b3261e"


def graph_dot(graph: WaitGraph) -> str:
    """DOT text: an arrow means "waits for"; those at fault are on top.

    Args:
        graph: of at most a few dozen nodes.
    """
    dot = graphviz.Digraph(
        "waits",
        graph_attr={"rankdir": "BT", "fontname": "sans-serif", "bgcolor": "transparent",
                    "nodesep": "0.3", "ranksep": "0.55"},
        node_attr={"shape": "box", "style": "filled,rounded", "fontname": "sans-serif",
                   "fontsize": "11", "fillcolor": "#f6f7f9", "color": "#c3c9d2",
                   "margin": "0.2,0.11", "class": "plain"},
        edge_attr={"color": "#5b6270", "arrowsize": "0.8"},
    )  # fmt: skip
    for number, node in enumerate(graph.nodes):
        look = (
            {"class": "bad", "fillcolor": "#fdecea", "color": _RED, "penwidth": "2"}
            if node.culprit
            else {}
        )
        dot.node(f"n{number}", _label(node), **look)
    for source, target in graph.edges:
        dot.edge(f"n{source}", f"n{target}")
    return str(dot.source)


def _label(node: WaitNode) -> str:
    title = title_of(node)
    lines = [f"{title} ({node.count:,} ranks)" if node.count > 1 else title]
    for line in node.lines:
        lines += textwrap.wrap(shown(line), _COLUMNS)
    if len(lines) > MAX_WRAPPED + 1:
        lines = [*lines[:MAX_WRAPPED], f"{lines[MAX_WRAPPED]} …"]
    return "".join(f"{graphviz.escape(shown(line))}\\l" for line in lines)
