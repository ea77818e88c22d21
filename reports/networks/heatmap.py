"""Bandwidth of every measured pair as one square picture: rows send, columns receive.

Colour says how much of the usual is missing: what is healthy stays quiet, and a bad node is a
cross, a bad link two dots, a bad switch a frame. Failures carry a sign too, not only a colour.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from relkit.netcheck.model import Edge
from relkit.reports.drawing.markup import middle_cut, shown, xml
from relkit.reports.drawing.palette import oklch

MAX_CELLS = 128
"""Nodes a side up to which each has a row of its own; beyond, neighbours share one."""

_BOUNDS = (0.97, 0.90, 0.80, 0.65, 0.45, 0.25)
"""Shares of the usual bandwidth at which the next stronger colour begins."""

_GLYPH_FROM, _FIGURES_FROM = 9.0, 34.0
_ROW_NAME, _COLUMN_NAME = 11.0, 17.0
"""Room in pixels that a name needs; where squares are smaller, only some names are written."""

_GUTTER_CHARS = 22


@dataclass(frozen=True, slots=True)
class Cell:
    """What one square shows.

    Args:
        share: the least share of the usual bandwidth among the edges in it; None: all failed.
        gbps: the bandwidth that goes with it.
        failed: how many edges failed; edges: how many there are.
        title: for the pointer.
    """

    share: float | None
    gbps: float
    failed: int
    edges: int
    title: str


def level(share: float) -> int:
    """0 (as usual) to 6 (hardly anything is left)."""
    return sum(share < bound for bound in _BOUNDS)


def render(
    nodes: Sequence[str],
    edges: Iterable[Edge],
    *,
    bad_nodes: Iterable[str] = (),
    bad_links: Iterable[Sequence[str]] = (),
    groups: Mapping[str, str] | None = None,
) -> str:
    """The picture as SVG text, to be put into a page that has css() in its style.

    Args:
        nodes: names in the order in which to draw them; with groups, members are put together.
        edges: all measurements; of several of one pair and direction the median counts.
        bad_nodes, bad_links: those at fault, marked in the margin and with a frame.
        groups: node -> switch, drawn as a band in the margin.
    """
    groups = groups or {}
    order = sorted(nodes, key=lambda name: groups.get(name, "")) if groups else list(nodes)
    bins = _bins(order)
    place = {name: i for i, names in enumerate(bins) for name in names}
    kept = [edge for edge in edges if edge.source in place and edge.target in place]
    usual = _usual(kept)
    cells = _cells(kept, place, usual)
    bad = {place[name] for name in bad_nodes if name in place}
    links = {
        tuple(sorted((place[pair[0]], place[pair[1]])))
        for pair in bad_links
        if len(pair) == 2 and pair[0] in place and pair[1] in place
    }
    side = min(56.0, max(4.0, 760.0 / max(len(bins), 1)))
    labels = [names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}" for names in bins]
    return _draw(labels, cells, bad, links, side, usual, _bands(bins, groups))


def css() -> str:
    """Rules for light and dark; colours follow the page's variables where they can."""
    return (
        _rules(dark=False)
        + f"@media screen and (prefers-color-scheme: dark) {{\n{_rules(dark=True)}}}\n"
        + _SHAPE
    )


_SHAPE = """.rk-heat { display: block; max-width: 100%; height: auto; }
.rk-heat text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  fill: var(--soft); font-variant-numeric: tabular-nums; }
.rk-heat .cell text { text-anchor: middle; dominant-baseline: central; pointer-events: none; }
.rk-heat .cell:hover rect { stroke: var(--text); stroke-width: 2; }
.rk-heat .guilty { fill: var(--bad); font-weight: 700; }
.rk-heat .guilty-band { fill: var(--bad); }
.rk-heat .frame { fill: none; stroke: var(--text); stroke-width: 2; pointer-events: none; }
.rk-heat .self { fill: var(--line); opacity: 0.55; }
.rk-heat .band { fill: none; stroke: var(--soft); stroke-width: 1.5; }
.rk-heat .ground { fill: url(#rk-heat-empty); }
.rk-heat .dots { fill: var(--line); }
.rk-heat .axis { font-weight: 600; }
"""


def _rules(*, dark: bool) -> str:
    # From the page's own grey-green through amber to red: lightness leaves the paper's steadily,
    # so that the order survives a grey print and the common colour blindnesses.
    if dark:
        steps = ((0.36, 0.035, 160), (0.43, 0.05, 130), (0.52, 0.085, 95), (0.61, 0.11, 75),
                 (0.67, 0.145, 55), (0.70, 0.17, 38), (0.72, 0.19, 22))  # fmt: skip
        dead, ink_low, ink_high = oklch(0.86, 0.10, 350), "#e8eaf0", "#16181d"
    else:
        steps = ((0.93, 0.035, 160), (0.90, 0.06, 125), (0.87, 0.10, 95), (0.80, 0.13, 75),
                 (0.71, 0.155, 55), (0.565, 0.18, 33), (0.47, 0.175, 22))  # fmt: skip
        dead, ink_low, ink_high = oklch(0.30, 0.09, 350), "#16181d", "#ffffff"
    lines = []
    for i, step in enumerate(steps):
        ink = ink_high if i >= (3 if dark else 5) else ink_low
        lines.append(f".rk-heat .l{i} rect, .rk-heat rect.l{i} {{ fill: {oklch(*step)}; }}\n")
        lines.append(f".rk-heat .l{i} text {{ fill: {ink}; }}\n")
    lines.append(f".rk-heat .dead rect, .rk-heat rect.dead {{ fill: {dead}; }}\n")
    glyph = "#16181d" if dark else "#ffffff"
    lines.append(f".rk-heat .dead text {{ fill: {glyph}; font-weight: 700; }}\n")
    return "".join(lines)


def _bins(order: Sequence[str]) -> list[list[str]]:
    width = -(-len(order) // MAX_CELLS) if order else 1
    return [list(order[i : i + width]) for i in range(0, len(order), width)]


def _usual(edges: Iterable[Edge]) -> float:
    good = [e.bandwidth_gbps for e in edges if not e.failure and e.bandwidth_gbps > 0]
    return median(good) if good else 0.0


def _cells(
    edges: Sequence[Edge], place: Mapping[str, int], usual: float
) -> dict[tuple[int, int], Cell]:
    pairs: dict[tuple[str, str], list[Edge]] = defaultdict(list)
    for edge in edges:
        pairs[edge.source, edge.target].append(edge)
    boxes: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for source, target in pairs:
        boxes[place[source], place[target]].append((source, target))
    return {at: _cell(inside, pairs, usual) for at, inside in boxes.items()}


def _cell(
    inside: Sequence[tuple[str, str]],
    pairs: Mapping[tuple[str, str], Sequence[Edge]],
    usual: float,
) -> Cell:
    """The worst of the pairs that share the square: one bad pair among many must stay visible."""
    failed = edges = 0
    worst: tuple[float, str] | None = None
    broken = ""
    for source, target in inside:
        way = f"{shown(source)} → {shown(target)}"
        mine = pairs[source, target]
        edges += len(mine)
        bad = [edge for edge in mine if edge.failure]
        good = [edge for edge in mine if not edge.failure]
        failed += len(bad)
        if bad and not broken:
            broken = f"{way}: {bad[0].failure.value}"
        if good:
            speed = median(edge.bandwidth_gbps for edge in good)
            share = speed / usual if usual else 1.0
            trips = [edge.latency_p50_us for edge in good if edge.latency_p50_us > 0]
            text = f"{way}: {gbps_text(speed)} Gbit/s, {100 * share:.0f} % of usual"
            if trips:
                text += f", round trip {median(trips):.0f} µs"
            if worst is None or speed < worst[0]:
                worst = (speed, text)
    lines = [text for text in (broken, worst[1] if worst else "") if text]
    if len(inside) > 1:
        lines.insert(0, f"worst of {len(inside)} pairs")
    title = "\n".join(lines)
    if worst is None:
        return Cell(None, 0.0, failed, edges, title)
    return Cell(worst[0] / usual if usual else 1.0, worst[0], failed, edges, title)


def gbps_text(value: float) -> str:
    """Three digits that count: 128, 94.1, 9.41, 0.285."""
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.995 else f"{value:.3f}"


def _bands(bins: Sequence[Sequence[str]], groups: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """(switch, first row, row after the last) where there are groups."""
    bands: list[tuple[str, int, int]] = []
    for i, names in enumerate(bins):
        name = groups.get(names[0], "")
        if bands and bands[-1][0] == name:
            bands[-1] = (name, bands[-1][1], i + 1)
        else:
            bands.append((name, i, i + 1))
    return [band for band in bands if band[0]]


def _draw(
    labels: Sequence[str],
    cells: Mapping[tuple[int, int], Cell],
    bad: set[int],
    links: set[tuple[int, ...]],
    side: float,
    usual: float,
    bands: Sequence[tuple[str, int, int]],
) -> str:
    count = len(labels)
    names = [middle_cut(shown(label), _GUTTER_CHARS) for label in labels]
    widest = max(map(len, names), default=0) * 6.4 + 12
    left, top = widest + 22 + (16 if bands else 0), widest * 0.72 + 26
    size = count * side
    gap = 1.0 if side >= 8 else 0.0
    out: list[str] = []
    for i in range(count):
        x, y = left + i * side, top + i * side
        out.append(f'<rect class="self" x="{x:.1f}" y="{y:.1f}" width="{side - gap:.1f}" '
                   f'height="{side - gap:.1f}" rx="{min(3, side / 6):.1f}"/>')  # fmt: skip
    for (row, column), cell in sorted(cells.items()):
        out.append(_square(cell, left + column * side, top + row * side, side, gap))
    for first, second in sorted(links):
        for row, column in ((first, second), (second, first)):
            out.append(
                f'<rect class="frame" x="{left + column * side - 1:.1f}" '
                f'y="{top + row * side - 1:.1f}" width="{side - gap + 2:.1f}" '
                f'height="{side - gap + 2:.1f}" rx="{min(4, side / 5):.1f}"/>'
            )
    out += _names(names, bad | {i for link in links for i in link}, side, left, top)
    for i in sorted(bad):
        out.append(f'<rect class="guilty-band" x="{left - 5:.1f}" y="{top + i * side:.1f}" '
                   f'width="3" height="{side - gap:.1f}"/>')  # fmt: skip
        out.append(f'<rect class="guilty-band" x="{left + i * side:.1f}" y="{top - 5:.1f}" '
                   f'width="{side - gap:.1f}" height="3"/>')  # fmt: skip
    for name, first, end in bands:
        y, y2 = top + first * side + 1, top + end * side - gap - 1
        out.append(f'<path class="band" d="M20 {y:.1f}h-4V{y2:.1f}h4"/>'
                   f'<text transform="translate(8 {(y + y2) / 2:.1f}) rotate(-90)" '
                   f'text-anchor="middle" dominant-baseline="central">'
                   f"{xml(middle_cut(shown(name), 16))}</text>")  # fmt: skip
    out.append(f'<text class="axis" x="{left:.1f}" y="12">rows send, columns receive</text>')
    out.append(_legend(left, top + size + 10, usual))
    width = max(left + size + widest * 0.72 + 8, left + 560)
    height = top + size + 64
    return (
        f'<svg class="rk-heat" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="bandwidth of every measured pair">\n'
        '<defs><pattern id="rk-heat-empty" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<circle class="dots" cx="3" cy="3" r="0.9"/></pattern></defs>\n'
        f'<rect class="ground" x="{left:.1f}" y="{top:.1f}" width="{size:.1f}" '
        f'height="{size:.1f}"/>\n' + "\n".join(out) + "\n</svg>\n"
    )


def _names(
    names: Sequence[str], guilty: set[int], side: float, left: float, top: float
) -> list[str]:
    out = []
    for i in _spread(len(names), guilty, side, _ROW_NAME):
        kind = ' class="guilty"' if i in guilty else ""
        out.append(
            f'<text{kind} x="{left - 8:.1f}" y="{top + (i + 0.5) * side:.1f}" '
            f'text-anchor="end" dominant-baseline="central">{xml(names[i])}</text>'
        )
    for i in _spread(len(names), guilty, side, _COLUMN_NAME):
        kind = ' class="guilty"' if i in guilty else ""
        out.append(
            f'<text{kind} transform="translate({left + (i + 0.5) * side:.1f} {top - 8:.1f}) '
            f'rotate(-45)" dominant-baseline="central">{xml(names[i])}</text>'
        )
    return out


def _spread(count: int, guilty: set[int], side: float, room: float) -> list[int]:
    """Which of the names to write so that none overlap: the guilty first, then every nth."""
    step = max(1, math.ceil(room / side))
    chosen: list[int] = []
    for i in [*sorted(guilty), *range(0, count, step)]:
        if all(abs(i - other) >= step for other in chosen):
            chosen.append(i)
    return chosen


def _square(cell: Cell, x: float, y: float, side: float, gap: float) -> str:
    kind = "dead" if cell.share is None or cell.failed else f"l{level(cell.share)}"
    text = ""
    if kind == "dead" and side >= _GLYPH_FROM:
        text = "✕"
    elif side >= _FIGURES_FROM:
        text = gbps_text(cell.gbps)
    label = (
        f'<text x="{x + (side - gap) / 2:.1f}" y="{y + (side - gap) / 2:.1f}">{text}</text>'
        if text
        else ""
    )
    return (
        f'<g class="cell {kind}"><title>{xml(cell.title)}</title><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{side - gap:.1f}" height="{side - gap:.1f}" rx="{min(3, side / 6):.1f}"/>'
        f"{label}</g>"
    )


def _legend(x: float, y: float, usual: float) -> str:
    parts = []
    step = 46.0
    words = ["≥ 97 %", *(f"< {100 * bound:.0f} %" for bound in _BOUNDS)]
    for i, word in enumerate(words):
        parts.append(_key(f"l{i}", x + i * step, y, step - 2, word))
    after = x + len(words) * step + 12
    parts.append(_key("dead", after, y, 22, "failed"))
    parts.append(_key("ground", after + 62, y, 24, "not measured"))
    if usual:
        note = f"share of the median, {gbps_text(usual)} Gbit/s"
        parts.append(f'<text x="{x:.1f}" y="{y + 50:.1f}">{note}</text>')
    return "".join(parts)


def _key(kind: str, x: float, y: float, width: float, word: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y + 10:.1f}" width="{width:.1f}" height="10" '
        f'rx="2"/><text x="{x:.1f}" y="{y + 34:.1f}">{xml(word)}</text>'
    )
