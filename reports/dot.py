"""The merged tree as a Graphviz graph, chains compressed: where ranks part fits one screen."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib

import graphviz

from relkit.ranks import RankSet
from relkit.reports.drawing.markup import display_name, middle_cut, place, shown
from relkit.reports.drawing.palette import oklch
from relkit.reports.flames.flame_boxes import Box, boxes
from relkit.stacks.tree import StackTree

_NAME_CHARS = 60
_SHOWN_FRAMES = 3


def stack_dot(tree: StackTree, drawn: list[Box] | None = None) -> str:
    """DOT text in the manner of STAT: edges say `count:[ranks]`, equal rank sets equal colour.

    A run of frames without a branch is one node. Large trees are bounded like the flame SVG: at
    most some 480 stacks, the rarest first, the rest as explicit "+N more" nodes.

    Args:
        tree: the merged stacks of one view.
        drawn: its boxes, where they are made already.
    """
    drawn = boxes(tree) if drawn is None else drawn
    graph = graphviz.Digraph(
        f"stacks_{tree.view}",
        graph_attr={"rankdir": "TB", "fontname": "monospace", "nodesep": "0.25"},
        node_attr={"shape": "box", "style": "filled,rounded", "fontname": "monospace"},
        edge_attr={"fontname": "monospace", "color": "#5b6270"},
    )
    if tree.absent:
        label = f"absent (no dump)\n{len(tree.absent)}:[{tree.absent.fold_briefly()}]"
        graph.node("absent", graphviz.escape(label), style="filled,dashed", fillcolor="#fff3ea")
    graph.node("root", f"{len(tree.present)} of {tree.world_size} ranks", fillcolor="#ffffff")
    heads = {i for i, box in enumerate(drawn) if box.kind != "fold" and _starts_run(drawn, i)}
    for i in sorted(heads):
        run = _run(drawn, i)
        lines = [_line(box) for box in run]
        if len(lines) > _SHOWN_FRAMES:
            lines = [lines[0], f"… {len(lines) - 2} frames …", lines[-1]]
        text = "".join(f"{graphviz.escape(line)}\\l" for line in lines)
        ranks = run[0].ranks
        graph.node(f"n{i}", text, fillcolor=_colour(ranks))
        above = _owner(drawn, i, heads)
        label = f"{len(ranks)}:[{ranks.fold_briefly()}]"
        graph.edge("root" if above < 0 else f"n{above}", f"n{i}", graphviz.escape(label))
    return str(graph.source)


def _starts_run(drawn: list[Box], i: int) -> bool:
    parent = _parent(drawn, i)
    return parent < 0 or not _goes_on(drawn, parent)


def _parent(drawn: list[Box], i: int) -> int:
    parent = drawn[i].parent
    return drawn[parent].parent if parent >= 0 and drawn[parent].kind == "fold" else parent


def _children(drawn: list[Box], i: int) -> list[int]:
    return [drawn[j].children[0] if drawn[j].kind == "fold" else j for j in drawn[i].children]


def _goes_on(drawn: list[Box], i: int) -> bool:
    """The only thing below is one frame of the very same ranks: no decision is taken here."""
    below = _children(drawn, i)
    node = drawn[i].node
    if len(below) != 1 or node is None or node.ends or drawn[below[0]].kind == "more":
        return False
    return drawn[below[0]].ranks == drawn[i].ranks


def _run(drawn: list[Box], i: int) -> list[Box]:
    run = [drawn[i]]
    while _goes_on(drawn, i):
        i = _children(drawn, i)[0]
        run.append(drawn[i])
    return run


def _owner(drawn: list[Box], i: int, heads: set[int]) -> int:
    above = _parent(drawn, i)
    while above >= 0 and above not in heads:
        above = _parent(drawn, above)
    return above


def _line(box: Box) -> str:
    if box.kind == "more" or box.node is None:
        return f"+{box.count} more"
    name = middle_cut(shown(display_name(box.node.func)), _NAME_CHARS)
    return f"{name}  {middle_cut(shown(place(box.node.source)), _NAME_CHARS)}".rstrip()


def _colour(ranks: RankSet) -> str:
    # The intervals of a large set take long to make, and its bits are as good.
    angle = zlib.crc32(ranks.packed() or repr(ranks.intervals).encode()) % 360
    return oklch(0.88, 0.075, float(angle))


def picture(dot_text: str, *, timeout_s: float = 10.0) -> str | None:
    """The graph as SVG, where Graphviz is installed and is done in time; else None.

    Args:
        dot_text: what stack_dot made.
        timeout_s: seconds; layout time grows faster than the graph (a few thousand nodes take
            tens of seconds), and no report may wait for that.
    """
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=dot_text.encode(errors="replace"),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def inline(svg: str | None) -> str:
    """What Graphviz wrote, without the XML head that has no place inside HTML; "" for nothing."""
    if not svg:
        return ""
    start = svg.find("<svg")
    return re.sub(r"<!--.*?-->\n?", "", svg[start:], flags=re.DOTALL) if start >= 0 else ""
