"""Ranks by steps: how much longer than its peers each rank took, the accused enlarged and framed.

Cells that share a pixel show the worst of them, so that one slow rank among thousands stays.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.reports.drawing.chart_scale import GUTTER, PLOT, WIDTH, Steps
from relkit.reports.drawing.markup import middle_cut, shown, xml
from relkit.reports.drawing.palette import oklch
from relkit.reports.drawing.png import indexed
from relkit.straggler.history_types import History, RaisedVerdict
from relkit.straggler.model import Subject
from relkit.straggler.present.metrics import Metrics

BOUNDS = (0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
"""Slowdowns from which on the next stronger colour begins."""

NOT_KNOWN = len(BOUNDS) + 1
_BIG = 32
_MAX_ROWS, _MAX_COLUMNS, _MAX_ACCUSED = 256, 864, 12
_BLOCKS = 22
_LINE = 14.0

_LIGHT = ((0.972, 0.006), (0.915, 0.045), (0.84, 0.095), (0.74, 0.145), (0.62, 0.175),
          (0.48, 0.15), (0.33, 0.105))  # fmt: skip
_DARK = ((0.245, 0.008), (0.335, 0.05), (0.43, 0.085), (0.54, 0.12), (0.66, 0.15), (0.78, 0.13),
         (0.91, 0.06))  # fmt: skip
_HUE = 45.0

Cells = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Row:
    """Ranks that share a row of a panel; `label` may be empty."""

    ranks: tuple[int, ...]
    label: str


def colours(*, dark: bool) -> list[str]:
    """From as usual to more than twice as long; the last one stands for not known."""
    return [oklch(light, chroma, _HUE) for light, chroma in (_DARK if dark else _LIGHT)]


def css() -> str:
    """Rules for the legend's squares."""

    def rules(dark: bool) -> str:
        return "".join(
            f".rk-slow .l{i} {{ fill: {colour}; }}\n" for i, colour in enumerate(colours(dark=dark))
        )

    return f"{rules(False)}@media screen and (prefers-color-scheme: dark) {{\n{rules(True)}}}\n"


def levels(slowdown: Cells) -> NDArray[np.uint8]:
    """The number of each cell's colour."""
    numbers = np.searchsorted(np.array(BOUNDS), np.nan_to_num(slowdown), side="right").astype(
        np.uint8
    )
    numbers[~np.isfinite(slowdown)] = NOT_KNOWN
    return numbers


def worst_of(values: Cells, size: int, axis: int) -> Cells:
    """The largest of every `size` neighbours; NaN where none is known."""
    if size <= 1 or not values.shape[axis]:
        return values
    starts = np.arange(0, values.shape[axis], size)
    worst: Cells = np.fmax.reduceat(values, starts, axis=axis)
    return worst


def render(history: History, metrics: Metrics) -> str:
    """The picture as SVG, for a page that has css() and straggler.css in its style.

    Args:
        history: which ranks, where, accused of what; metrics: the slowdown.
    """
    steps = Steps(history.first_step, max(1, history.steps))
    order = by_host(history.hosts)
    accused = _accused(history)
    out: list[str] = []
    y = 8.0
    lanes = [raised for raised in history.verdicts if raised.verdict.subject is not Subject.RANK][
        :6
    ]
    for raised in lanes:
        out.append(_lane(raised, steps, y, history))
        y += 20.0
    small = history.world_size <= _BIG
    if small:
        rows = [_Row((rank,), _named(history, rank)) for rank in order]
        height = 24.0 if len(rows) <= 16 else 16.0
        out += _panel(history, metrics, rows, steps, y, height)
        out += _frames(accused, {row.ranks[0]: i for i, row in enumerate(rows)}, steps, y, height)
        y += height * len(rows)
    else:
        chosen = list(dict.fromkeys(raised.verdict.rank for raised in accused))[:_MAX_ACCUSED]
        if chosen:
            rows = [_Row((rank,), _named(history, rank)) for rank in chosen]
            out += _panel(history, metrics, rows, steps, y, 24.0)
            out += _frames(accused, {rank: i for i, rank in enumerate(chosen)}, steps, y, 24.0)
            y += 24.0 * len(rows) + 30.0
        y = _everybody(out, history, metrics, order, steps, y)
    out.append(steps.axis(y + 4))
    out.append(_legend(y + 44))
    height_px = y + 92
    accused_text = ", ".join(f"rank {raised.verdict.rank}" for raised in accused) or "no rank"
    return (
        f'<svg class="rk-slow" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH:.0f} {height_px:.0f}" width="{WIDTH:.0f}" '
        f'height="{height_px:.0f}" role="img" aria-label="local time of each rank and step; '
        f'accused: {accused_text}">\n'
        '<defs><pattern id="rk-slow-empty" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<circle class="dots" cx="3" cy="3" r="1"/></pattern></defs>\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )


def by_host(hosts: Sequence[str]) -> list[int]:
    """Ranks host by host, hosts in the order of their first ranks."""
    first: dict[str, int] = {}
    for rank, host in enumerate(hosts):
        first.setdefault(host, rank)
    return sorted(range(len(hosts)), key=lambda rank: (first[hosts[rank]], rank))


def spread(wanted: Sequence[float], low: float, high: float, room: float) -> list[float]:
    """Places near the wanted ones (ascending) that are `room` apart, as far as there is room."""
    placed: list[float] = []
    for at in wanted:
        placed.append(max(at, placed[-1] + room if placed else low))
    limit = high
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - room
    return placed


def _accused(history: History) -> list[RaisedVerdict]:
    """Of ranks that are there, those that hold first."""
    return [
        raised
        for raised in history.accusations
        if raised.verdict.subject is Subject.RANK and 0 <= raised.verdict.rank < history.world_size
    ]


def _named(history: History, rank: int) -> str:
    host = middle_cut(shown(history.hosts[rank]), 12)
    return f"{rank} · {host}" if host else f"rank {rank}"


def _panel(
    history: History, metrics: Metrics, rows: Sequence[_Row], steps: Steps, y: float, height: float
) -> list[str]:
    """One row a rank, with its name and figures for the pointer."""
    cells = metrics.slowdown[[row.ranks[0] for row in rows]]
    accused = {raised.verdict.rank for raised in history.verdicts}
    out = [_image(cells, y, height * len(rows))]
    size = max(1, math.ceil(history.steps / _BLOCKS))
    for i, row in enumerate(rows):
        top = y + i * height
        out.append(
            f'<text class="right{" guilty" if row.ranks[0] in accused else ""}" '
            f'x="{GUTTER - 8:.0f}" y="{top + height / 2:.1f}">'
            f"{xml(row.label)}</text>"
        )
        for start in range(0, history.steps, size):
            end = min(start + size, history.steps)
            x = steps.x(history.first_step + start)
            wide = steps.x(history.first_step + end) - x
            title = _figures(
                f"rank {row.ranks[0]} ({history.hosts[row.ranks[0]]}), steps "
                f"{history.first_step + start:,}-{history.first_step + end - 1:,}",
                cells[i, start:end],
            )
            out.append(_touch(x, top, wide, height, title))
    return out


def _everybody(
    out: list[str], history: History, metrics: Metrics, order: Sequence[int], steps: Steps, y: float
) -> float:
    """All ranks, several a row where there are many; returns where it ends."""
    share = math.ceil(len(order) / _MAX_ROWS)
    bins = [tuple(order[i : i + share]) for i in range(0, len(order), share)]
    height = float(max(2, 512 // len(bins)))
    cells = worst_of(metrics.slowdown[list(order)], share, 0)
    whole = height * len(bins)
    out.append(_image(cells, y, whole))
    means = _means(metrics.slowdown)
    for i, ranks in enumerate(bins):
        known = [rank for rank in ranks if math.isfinite(means[rank])]
        worst = max(known, key=lambda rank: means[rank], default=-1)
        names = f"ranks {ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]}"
        title = f"{names} ({history.hosts[ranks[0]]}): nothing is known"
        if worst >= 0:
            title = (
                f"{names} ({history.hosts[ranks[0]]}): the worst is rank {worst}, "
                f"{100 * means[worst]:+.1f} % on average"
            )
        out.append(_touch(GUTTER, y + i * height, PLOT, height, title))
    place = {rank: y + (i + 0.5) * height for i, ranks in enumerate(bins) for rank in ranks}
    last = -_LINE
    for i, ranks in enumerate(bins):
        host = history.hosts[ranks[0]]
        fresh = i == 0 or history.hosts[bins[i - 1][0]] != host
        at = y + i * height
        if fresh and at - last >= 3 * _LINE:
            name = xml(middle_cut(shown(host), 18))
            out.append(
                f'<text class="right soft" x="{GUTTER - 8:.0f}" y="{at + 6:.1f}">{name}</text>'
            )
            out.append(f'<path class="axis" d="M{GUTTER - 5:.0f} {at + 0.5:.1f}h5"/>')
            last = at
    named = sorted({raised.verdict.rank for raised in history.verdicts} & place.keys())
    named.sort(key=lambda rank: place[rank])
    named = named[: int(whole // _LINE)]
    spots = spread([place[rank] for rank in named], y + 6, y + whole - 6, _LINE)
    for rank, at in zip(named, spots, strict=True):
        x = GUTTER + PLOT
        out.append(
            f'<path class="leader" d="M{x + 1:.0f} {place[rank]:.1f}L{x + 14:.0f} {at:.1f}"/>'
            f'<text class="guilty" x="{x + 17:.0f}" y="{at:.1f}">rank {rank}</text>'
        )
    note = f"all {history.world_size:,} ranks"
    note += f", {share} a row: the worst of them shows" if share > 1 else ""
    out.append(f'<text class="soft" x="{GUTTER:.0f}" y="{y - 10:.1f}">{note}</text>')
    return y + whole


def _frames(
    accused: Sequence[RaisedVerdict], place: dict[int, int], steps: Steps, y: float, height: float
) -> list[str]:
    out = []
    for raised in reversed(accused):
        if raised.verdict.rank not in place:
            continue
        top = y + place[raised.verdict.rank] * height
        ended = raised.ended_step >= 0
        end = raised.ended_step + 1 if ended else steps.first + steps.count
        left, right = steps.x(raised.verdict.first_step), steps.x(end)
        said = steps.x(raised.raised_step)
        kind = "frame past" if ended else "frame"
        out.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top + 1:.1f}" '
            f'width="{max(3.0, right - left):.1f}" height="{height - 2:.1f}" rx="2"/>'
            f'<path class="said" d="M{said - 4.5:.1f} {top - 1:.1f}h9l-4.5 7z"/>'
        )
        if not ended:
            out.append(
                f'<text class="guilty" x="{GUTTER + PLOT + 8:.0f}" y="{top + height / 2:.1f}">'
                f"{xml(str(raised.verdict.cause))}</text>"
            )
    return out


def _lane(raised: RaisedVerdict, steps: Steps, y: float, history: History) -> str:
    """A link or host: it has no row among the ranks."""
    verdict = raised.verdict
    name = "→".join(middle_cut(shown(end), 8) for end in verdict.ends)
    left, right = steps.x(verdict.first_step), steps.x(history.first_step + history.steps)
    said = steps.x(raised.raised_step)
    subject = f"{verdict.subject} {' → '.join(verdict.ends)}"
    title = f"{subject}: {verdict.cause} since step {verdict.first_step:,}"
    return (
        f'<text class="right guilty" x="{GUTTER - 8:.0f}" y="{y + 7:.1f}">{xml(name)}</text>'
        f'<g><title>{xml(shown(title))}</title><rect class="lane" x="{left:.1f}" '
        f'y="{y + 3:.1f}" width="{max(3.0, right - left):.1f}" height="8" rx="4"/></g>'
        f'<path class="said" d="M{said - 4.5:.1f} {y - 4:.1f}h9l-4.5 7z"/>'
        f'<text class="guilty" x="{GUTTER + PLOT + 8:.0f}" y="{y + 7:.1f}">'
        f"{xml(str(verdict.cause))}</text>"
    )


def _image(cells: Cells, y: float, height: float) -> str:
    if not cells.size:
        return ""
    numbers = levels(worst_of(cells, math.ceil(cells.shape[1] / _MAX_COLUMNS), 1))
    out = [f'<rect class="ground" x="{GUTTER:.0f}" y="{y:.1f}" width="{PLOT:.0f}" '
           f'height="{height:.1f}"/>']  # fmt: skip
    for kind, dark in (("light", False), ("dark", True)):
        data = indexed(numbers, [*colours(dark=dark), "#000000"], see_through=NOT_KNOWN)
        out.append(
            f'<image class="{kind}" x="{GUTTER:.0f}" y="{y:.1f}" width="{PLOT:.0f}" '
            f'height="{height:.1f}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{base64.b64encode(data).decode()}"/>'
        )
    return "".join(out)


def _touch(x: float, y: float, wide: float, high: float, title: str) -> str:
    return (
        f'<rect class="touch" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}">'
        f"<title>{xml(shown(title))}</title></rect>"
    )


def _figures(where: str, values: Cells) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return f"{where}: not known"
    return f"{where}: {100 * known.mean():+.1f} % on average, {100 * known.max():+.1f} % at most"


def _means(slowdown: Cells) -> list[float]:
    known = np.isfinite(slowdown)
    count = known.sum(axis=1)
    total = np.where(known, slowdown, 0.0).sum(axis=1)
    means: list[float] = np.where(count > 0, total / np.maximum(count, 1), np.nan).tolist()
    return means


def _legend(y: float) -> str:
    bounds = [f"{100 * bound:.0f}" for bound in BOUNDS]
    words = [f"< {bounds[0]} %", *(f"≥ {bound} %" for bound in bounds)]
    out = [
        f'<text x="{GUTTER:.0f}" y="{y:.1f}">local time of a step, longer than its peers by</text>'
    ]
    for i, word in enumerate(words):
        x = GUTTER + i * 60
        out.append(f'<rect class="l{i} key" x="{x:.1f}" y="{y + 12:.1f}" width="58" height="12"/>'
                   f'<text x="{x:.1f}" y="{y + 38:.1f}">{xml(word)}</text>')  # fmt: skip
    x = GUTTER + len(words) * 60 + 20
    out.append(f'<rect class="ground key" x="{x:.1f}" y="{y + 12:.1f}" width="58" height="12"/>'
               f'<text x="{x:.1f}" y="{y + 38:.1f}">not known</text>')  # fmt: skip
    x += 92
    out.append(f'<rect class="frame" x="{x:.1f}" y="{y + 12:.1f}" width="58" height="12" rx="2"/>'
               f'<text x="{x:.1f}" y="{y + 38:.1f}">accused</text>')  # fmt: skip
    x += 92
    out.append(f'<rect class="frame past" x="{x:.1f}" y="{y + 12:.1f}" width="58" height="12" '
               f'rx="2"/><text x="{x:.1f}" y="{y + 38:.1f}">recovered</text>')  # fmt: skip
    x += 92
    out.append(f'<path class="said" d="M{x:.1f} {y + 14:.1f}h9l-4.5 7z"/>'
               f'<text x="{x:.1f}" y="{y + 38:.1f}">said here</text>')  # fmt: skip
    return "".join(out)
