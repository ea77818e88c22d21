"""Lateness over time: a line for each accused rank, a band for everybody else."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relkit.reports.drawing.chart_scale import GUTTER, PLOT, WIDTH, Steps, ticks
from relkit.reports.drawing.markup import shown, xml
from relkit.reports.straggler.straggler_heat import spread, worst_of
from relkit.straggler.history_types import History
from relkit.straggler.model import Subject

MAX_LINES = 5
_MAX_POINTS = 440
_HEIGHT, _TOP = 220.0, 12.0
_LOW, _HIGH = 0.05, 0.95

Singles = NDArray[np.float32]


def render(history: History) -> str:
    """The chart as SVG; "" where no arrival was seen."""
    if not history.steps or not np.isfinite(history.late_s).any():
        return ""
    accused = [
        raised.verdict.rank
        for raised in history.verdicts
        if raised.verdict.subject is Subject.RANK and 0 <= raised.verdict.rank < history.world_size
    ]
    lines = list(dict.fromkeys(accused))[:MAX_LINES]
    size = math.ceil(history.steps / _MAX_POINTS)
    late = worst_of(history.late_s, size, 1)
    others = np.delete(late, accused, axis=0)
    band = _band(others)
    return _draw(history, late, lines, band, size)


def _band(values: Singles) -> NDArray[np.float64]:
    """Quantiles of each column: (low, middle, high); NaN where nothing is known."""
    band = np.full((3, values.shape[1]), np.nan)
    known = np.isfinite(values).any(axis=0)
    if values.size and known.any():
        band[:, known] = np.nanquantile(values[:, known], (_LOW, 0.5, _HIGH), axis=0)
    return band


def _draw(
    history: History,
    late: Singles,
    lines: Sequence[int],
    band: NDArray[np.float64],
    size: int,
) -> str:
    steps = Steps(history.first_step, max(1, history.steps))
    drawn = np.concatenate([late[list(lines)].ravel(), band.ravel()])
    drawn = drawn[np.isfinite(drawn)]
    # A start that took minutes must not flatten the rest.
    top_s = max(1e-6, min(float(drawn.max()), 4.0 * float(np.quantile(drawn, 0.99))))
    low_s = min(0.0, max(float(drawn.min()), -0.1 * top_s))
    cut = float(drawn.max()) > top_s * 1.001

    def y_of(value_s: float) -> float:
        high, low, at = (_root(s) for s in (top_s, low_s, min(max(value_s, low_s), top_s)))
        return _TOP + _HEIGHT * (high - at) / (high - low)

    xs = [steps.x(history.first_step + i * size + size / 2) for i in range(late.shape[1])]
    out = []
    factor, unit = (1e3, "ms") if top_s < 2 else (1.0, "s")
    for tick in _marks(top_s * factor):
        y = y_of(tick / factor)
        out.append(
            f'<path class="grid" d="M{GUTTER:.0f} {y:.1f}h{PLOT:.0f}"/>'
            f'<text class="right" x="{GUTTER - 8:.0f}" y="{y:.1f}">{tick:,g} {unit}</text>'
        )
    out.append(_area(xs, [y_of(v) for v in band[0]], [y_of(v) for v in band[2]], band))
    out.append(f'<path class="middle-line" d="{_path(xs, band[1], y_of)}"/>')
    ends: list[tuple[float, int, int]] = []
    for i, rank in enumerate(lines):
        title = f"rank {rank} ({history.hosts[rank]})"
        out.append(f'<g><title>{xml(shown(title))}</title><path class="line c{i}" '
                   f'd="{_path(xs, late[rank], y_of)}"/></g>')  # fmt: skip
        recent = late[rank][np.isfinite(late[rank])][-20:]
        ends.append((y_of(float(np.median(recent)) if len(recent) else 0.0), i, rank))
    ends.sort()
    spots = spread([y for y, _, _ in ends], _TOP + 6, _TOP + _HEIGHT - 6, 15.0)
    for (_, i, rank), y in zip(ends, spots, strict=True):
        x = GUTTER + PLOT + 8
        out.append(
            f'<path class="line c{i}" d="M{x:.0f} {y:.1f}h16"/>'
            f'<text class="strong" x="{x + 21:.0f}" y="{y:.1f}">rank {rank}</text>'
        )
    bottom = _TOP + _HEIGHT
    out.append(steps.axis(bottom))
    out.append(_key(bottom + 36, len(lines), cut))
    height = bottom + 56
    return (
        f'<svg class="rk-late" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="lateness of ranks over steps">\n' + "\n".join(out) + "\n</svg>\n"
    )


def _key(y: float, lines: int, cut: bool) -> str:
    others = "the other ranks" if lines else "all ranks"
    words = f"{others}: 5 % to 95 % of them, and the middle"
    cut_text = "; the highest peaks are cut" if cut else ""
    return (
        f'<rect class="area" x="{GUTTER:.0f}" y="{y - 6:.1f}" width="26" height="12"/>'
        f'<path class="middle-line" d="M{GUTTER:.0f} {y:.1f}h26"/>'
        f'<text x="{GUTTER + 34:.0f}" y="{y:.1f}">{words}</text>'
        f'<text class="right" x="{GUTTER + PLOT:.0f}" y="{y:.1f}">'
        f"square-root scale{cut_text}</text>"
    )


def _root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value)


def _marks(top: float) -> list[float]:
    """Ticks for a square-root scale: closer together near 0."""
    chosen = [0.0]
    for tick in reversed([t for size in (1, 3, 9) for t in ticks(0, top / size, 3)]):
        if all(abs(_root(tick) - _root(other)) > 0.11 * _root(top) for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _path(xs: Sequence[float], values: NDArray[np.floating], y_of: object) -> str:
    assert callable(y_of)
    parts = []
    pen = "M"
    for x, value in zip(xs, values.tolist(), strict=True):
        if not math.isfinite(value):
            pen = "M"
            continue
        parts.append(f"{pen}{x:.1f} {y_of(value):.1f}")
        pen = "L"
    return "".join(parts)


def _area(
    xs: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    band: NDArray[np.float64],
) -> str:
    known = [i for i in range(len(xs)) if math.isfinite(band[1, i])]
    if len(known) < 2:
        return ""
    there = "L".join(f"{xs[i]:.1f} {high[i]:.1f}" for i in known)
    back = "L".join(f"{xs[i]:.1f} {low[i]:.1f}" for i in reversed(known))
    return f'<path class="area" d="M{there}L{back}z"/>'
