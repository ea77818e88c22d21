"""Draws the curves of a soak as an SVG without any library: a panel below the other."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from tools.soak.samples import Curve, judge

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 760, 120, 70, 20, 48, 34
# Okabe and Ito's: told apart by colour-blind readers too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73")
_SECONDS_A_MINUTE, _TICKS = 60.0, 5


def draw(curves: Sequence[Curve], title: str) -> str:
    """The picture; a panel holds the curves that name it."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    height = _TOP + len(panels) * (_PANEL + _GAP) + 10
    last_s = max(time_s for curve in curves for time_s, _ in curve.points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fcfcfa"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        top = _TOP + number * (_PANEL + _GAP)
        chosen = [curve for curve in curves if curve.panel == panel]
        parts += _panel(chosen, top, last_s or 1.0)
    bottom = _TOP + len(panels) * (_PANEL + _GAP) - _GAP + 28
    for tick in range(_TICKS + 1):
        x = _LEFT + tick / _TICKS * (_WIDTH - _LEFT - _RIGHT)
        minutes = last_s * tick / _TICKS / _SECONDS_A_MINUTE
        anchor = "end" if tick == _TICKS else "middle"
        parts.append(
            f'<text x="{x:.0f}" y="{bottom}" text-anchor="{anchor}">{minutes:.1f} min</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _panel(curves: Sequence[Curve], top: int, last_s: float) -> list[str]:
    high = 1.15 * max(value for curve in curves for _, value in curve.points) or 1.0
    right = _WIDTH - _RIGHT
    parts = [
        f'<rect x="{_LEFT}" y="{top}" width="{right - _LEFT}" height="{_PANEL}" fill="none"'
        ' stroke="#ccc"/>',
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{high:.4g}</text>',
        f'<text x="{_LEFT - 6}" y="{top + _PANEL}" text-anchor="end">0</text>',
        f'<text x="{_LEFT}" y="{top - 5}" font-weight="bold">{escape(curves[0].panel)}</text>',
    ]
    labels = []
    for colour, curve in zip(_COLOURS, curves, strict=False):
        line = " ".join(
            f"{_LEFT + time_s / last_s * (right - _LEFT):.1f},"
            f"{top + _PANEL * (1 - value / high):.1f}"
            for time_s, value in curve.points
        )
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        )
        verdict = judge(curve)
        said = "flat" if verdict.is_flat else "not flat"
        unit = f" {curve.unit}" if curve.unit else ""
        label = f"{curve.name} {verdict.middle:.4g}{unit}, {verdict.rise:+.2g}, {said}"
        labels.append(f'<tspan fill="{colour}">{escape(label)}</tspan>')
    parts.append(f'<text x="{right}" y="{top - 5}" text-anchor="end">{"; ".join(labels)}</text>')
    return parts
