"""One merged stack tree as one self-contained SVG file: nothing is fetched from outside."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from relkit.reports.drawing import palette
from relkit.reports.drawing.content_policy import picture_block, policy
from relkit.reports.drawing.markup import middle_cut, shown, xml
from relkit.reports.drawing.rank_sets import SetTable
from relkit.reports.flames.flame_boxes import Box, boxes
from relkit.reports.flames.flame_layout import layout
from relkit.reports.flames.flame_text import box_markup
from relkit.stacks.tree import StackTree

WIDTH = 1600
MARGIN = 16
HEAD = 118
ABSENT_ROW = 32
FOOT = 24
# In this order inside one function: flame.js starts what the others define.
_SCRIPTS = (
    "flame_text.js",
    "flame_widths.js",
    "flame_find.js",
    "flame_picture.js",
    "flame_place.js",
    "flame_mark.js",
    "flame_detail.js",
    "flame_address.js",
    "flame_tools.js",
    "flame_pointer.js",
    "flame_keys.js",
    "flame.js",
)


@lru_cache
def style_block() -> str:
    """The picture's <style>; the same text in every picture, all rules scoped to .rk-flame."""
    return f"<style><![CDATA[{style_text()}]]></style>\n"


@lru_cache
def style_text() -> str:
    """What the browser finds inside the picture's <style>."""
    return f"\n{_template('flame.css')}{palette.css()}"


@lru_cache
def script_block() -> str:
    """The picture's <script>; it takes care of every picture of the document, once each."""
    return f"<script><![CDATA[{script_text()}]]></script>\n"


@lru_cache
def script_text() -> str:
    """What the browser finds inside the picture's <script>."""
    parts = "\n".join(_template(name) for name in _SCRIPTS)
    return f'\n(function () {{\n"use strict";\n{parts}}})();\n'


@lru_cache
def policy_block() -> str:
    """The picture's Content-Security-Policy; to be left out where the picture goes into HTML."""
    return picture_block(policy(styles=[style_text()], scripts=[script_text()]))


def _template(name: str) -> str:
    return files("relkit.reports").joinpath("templates", name).read_text(encoding="utf-8")


def render(
    tree: StackTree, *, title: str, subtitle: str = "", drawn: Sequence[Box] | None = None
) -> str:
    """Draw the tree, root on top, suspects to the left.

    Args:
        tree: the merged stacks of one view.
        title: the picture's heading.
        subtitle: one line below it; what was looked at, when, of which job.
        drawn: the tree's boxes, where they are made already.

    Returns:
        An SVG document, without policy_block() also fit to be inlined in HTML: the same bytes
        for the same tree, at most 2 MB, every rank of the tree in it.
    """
    drawn = boxes(tree) if drawn is None else drawn
    present = len(tree.present)
    places = layout(drawn, WIDTH - 2 * MARGIN, present)
    table = SetTable(tree.present, tree.world_size)
    body = "".join(
        box_markup(box, spot, table, present) for box, spot in zip(drawn, places, strict=True)
    )
    top = HEAD + (ABSENT_ROW if tree.absent else 0)
    depth = max((spot.y + spot.height for spot in places), default=60.0)
    height = round(top + depth + FOOT)
    identity = f"rk-{zlib.crc32(f'{title}{subtitle}{body}'.encode(errors='replace')):08x}"
    facts = {
        "view": tree.view,
        "world": tree.world_size,
        "present": present,
        "absent": tree.absent.fold_strided(),
        "sets": table.texts(),
    }
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rk-flame" id="{identity}" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">\n'
        f"{policy_block()}"
        f"<title>{xml(shown(title))}</title>\n"
        f"{style_block()}"
        f'<metadata class="rk-facts">{xml(json.dumps(facts, ensure_ascii=False))}</metadata>\n'
        '<rect class="rk-paper" fill="#ffffff" width="100%" height="100%"/>\n'
        f'<g class="rk-body" transform="translate({MARGIN} {top})">\n{body}</g>\n'
        f"{_head(tree, drawn, title, subtitle, identity, top)}"
        f"{script_block()}</svg>\n"
    )


def _head(
    tree: StackTree, drawn: Sequence[Box], title: str, subtitle: str, identity: str, top: int
) -> str:
    heading, below = (xml(middle_cut(shown(text), 150)) for text in (title, subtitle))
    hint = "Hover over a box for its exact name." if drawn else "No stacks were read."
    return (
        f'<g class="rk-head">\n'
        f'<rect class="rk-cover" fill="#ffffff" width="100%" height="{top - 4}"/>\n'
        f'<text class="rk-h1" x="{MARGIN}" y="33">{heading}</text>\n'
        f'<text class="rk-h2" x="{MARGIN}" y="54">{below}</text>\n'
        f"{_legend(tree, drawn)}"
        f'<text class="rk-detail rk-hint" x="{MARGIN}" y="104">{hint}</text>\n'
        f"{_absent(tree, identity)}</g>\n"
    )


def _legend(tree: StackTree, drawn: Sequence[Box]) -> str:
    x = float(MARGIN)
    parts = []
    for which in palette.Family:
        name = palette.HUES[which].title
        parts.append(
            f'<g class="rk-key rk-{which} rk-r3" data-family="{which}" '
            f'transform="translate({x:g} 70)"><rect width="12" height="12" rx="3"/>'
            f'<text class="rk-note" x="18" y="10">{name}</text></g>\n'
        )
        x += 46 + 5.9 * len(name)
    x += 14
    steps = "".join(
        f'<g class="rk-torch rk-r{level}">'
        f'<rect x="{66 + 15 * level}" width="13" height="12" rx="2"/></g>'
        for level in range(palette.LEVELS)
    )
    parts.append(
        f'<g class="rk-scale" transform="translate({x:g} 70)">'
        f'<text class="rk-note" x="0" y="10">all ranks</text>'
        f'{steps}<text class="rk-note" x="148" y="10">few ranks</text></g>\n'
    )
    frames = sum(1 for box in drawn if box.kind in ("frame", "inner"))
    ranks = f"{len(tree.present):,} of {tree.world_size:,} ranks read"
    summary = f"{ranks} · {frames:,} frames"
    left_out = sum(box.count for box in drawn if box.kind == "more")
    if left_out:
        summary += f" · {left_out:,} stacks in summary boxes"
    parts.append(f'<text class="rk-sum" x="{WIDTH - MARGIN}" y="80">{summary}</text>\n')
    return "".join(parts)


def _absent(tree: StackTree, identity: str) -> str:
    """A hatched banner: a rank without a dump must never look innocent."""
    if not tree.absent:
        return ""
    names = tree.absent.fold_briefly(", ", most=24, is_counted=False)
    many = "rank" if len(tree.absent) == 1 else "ranks"
    text = f"absent: {names} (no dump of {len(tree.absent):,} {many}; nothing here clears them)"
    return (
        f'<g class="rk-absent" transform="translate({MARGIN} {HEAD - 4})">'
        f"<title>{xml(text)}</title>"
        f'<defs><pattern id="{identity}-hatch" width="8" height="8" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect class="rk-hatch" width="3" height="8"/></pattern></defs>'
        f'<rect class="rk-band" fill="#fff3ea" width="{WIDTH - 2 * MARGIN}" height="24" rx="4"/>'
        f'<rect class="rk-hatched" width="{WIDTH - 2 * MARGIN}" height="24" rx="4" '
        f'fill="url(#{identity}-hatch)"/>'
        f'<text x="10" y="16.5">{xml(middle_cut(text, 190))}</text></g>\n'
    )
