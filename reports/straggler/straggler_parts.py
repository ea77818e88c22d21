"""Where a straggler's step goes, beside its peers': stacked bars on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relkit.reports.drawing.chart_scale import GUTTER, PLOT, WIDTH, ticks
from relkit.reports.drawing.markup import middle_cut, shown, xml
from relkit.straggler.model import PARTS
from relkit.straggler.present.metrics import Breakdown

MAX_RANKS = 6
MAIN = {"compute": "compute", "input": "input", "unattributed": "unattributed"}
HOST = {"gc": "garbage collection", "run_queue_wait": "run-queue wait",
        "throttled": "stopped by its cgroup", "off_cpu": "main thread off-CPU"}  # fmt: skip
_BAR, _THIN, _BLOCK = 20.0, 7.0, 92.0
_FIGURE_ROOM = 52.0


def render(breakdowns: Sequence[Breakdown], hosts: Sequence[str]) -> str:
    """The bars as SVG; "" where nobody is accused.

    Args:
        breakdowns: worst first; hosts: by rank.
    """
    shown_ranks = breakdowns[:MAX_RANKS]
    sides = [side for breakdown in shown_ranks for side in (breakdown.mine_s, breakdown.peers_s)]
    longest_s = max(map(_own, sides), default=0.0)
    if not longest_s > 0.0:
        return ""
    scale = (PLOT - 40) / longest_s
    out = []
    for i, breakdown in enumerate(shown_ranks):
        y = 4 + i * _BLOCK
        own, usual = _own(breakdown.mine_s), _own(breakdown.peers_s)
        host = middle_cut(shown(hosts[breakdown.rank]), 12)
        name = f"{breakdown.rank} · {host}" if host else f"rank {breakdown.rank}"
        slowdown = f"{_ms(own)}"
        if usual > 0.0:
            slowdown += f", {1e3 * (own - usual):+.3g} ms"
        out += _bars(name, "strong", breakdown.mine_s, y, scale, slowdown)
        out += _bars("its peers", "soft", breakdown.peers_s, y + 38, scale, _ms(usual))
    bottom = 4 + len(shown_ranks) * _BLOCK - 10
    out.append(f'<path class="axis" d="M{GUTTER:.0f} {bottom:.1f}h{PLOT:.0f}"/>')
    for tick in ticks(0.0, 1e3 * PLOT / scale, 9):
        x = GUTTER + tick / 1e3 * scale
        out.append(
            f'<path class="axis" d="M{x:.1f} {bottom:.1f}v4"/>'
            f'<text class="middle" x="{x:.1f}" y="{bottom + 17:.1f}">{tick:,g}</text>'
        )
    out.append(f'<text class="name" x="{GUTTER + PLOT + 24:.0f}" y="{bottom + 17:.1f}">'
               "ms a step</text>")  # fmt: skip
    out.append(_legend(bottom + 40))
    height = bottom + 78
    return (
        f'<svg class="rk-parts" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="parts of a step of each straggler and of its peers">\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )


def _own(side: Sequence[float]) -> float:
    return sum(value for value in side[:3] if math.isfinite(value))


def _ms(value_s: float) -> str:
    return f"{1e3 * value_s:,.3g} ms" if value_s < 99.95 else f"{value_s:,.3g} s"


def _bars(
    name: str, kind: str, side: Sequence[float], y: float, scale: float, figure: str
) -> list[str]:
    """The three parts, and below, thinner, what the host took of them."""
    out = [f'<text class="right {kind}" x="{GUTTER - 8:.0f}" y="{y + _BAR / 2:.1f}">'
           f"{xml(name)}</text>"]  # fmt: skip
    x = GUTTER
    for part, words in MAIN.items():
        x = _segment(out, part, words, side[PARTS.index(part)], x, y, _BAR, scale)
    out.append(f'<text class="{kind}" x="{x + 8:.1f}" y="{y + _BAR / 2:.1f}">{xml(figure)}</text>')
    x = GUTTER
    for part, words in HOST.items():
        x = _segment(out, part, words, side[PARTS.index(part)], x, y + _BAR + 2, _THIN, scale)
    return out


def _segment(
    out: list[str],
    part: str,
    words: str,
    value_s: float,
    x: float,
    y: float,
    height: float,
    scale: float,
) -> float:
    if not (math.isfinite(value_s) and value_s > 0.0):
        return x
    wide = value_s * scale
    gap = 1.0 if wide > 3 else 0.0
    out.append(
        f'<g><title>{words}: {_ms(value_s)}</title><rect class="p-{part}" x="{x:.1f}" '
        f'y="{y:.1f}" width="{wide - gap:.1f}" height="{height:.0f}"/></g>'
    )
    if height == _BAR and wide >= _FIGURE_ROOM:
        out.append(f'<text class="in p-{part}-ink" x="{x + 7:.1f}" y="{y + height / 2:.1f}">'
                   f"{_ms(value_s)}</text>")  # fmt: skip
    return x + wide


def _legend(y: float) -> str:
    out = []
    for row, (words, parts) in enumerate((("of a step", MAIN), ("of that", HOST))):
        at = y + 19 * row
        out.append(f'<text class="right soft" x="{GUTTER - 8:.0f}" y="{at:.1f}">{words}</text>')
        x = GUTTER
        for part, text in parts.items():
            out.append(f'<rect class="p-{part}" x="{x:.1f}" y="{at - 5:.1f}" width="26" '
                       f'height="{10 if row == 0 else 7}"/>'
                       f'<text x="{x + 33:.1f}" y="{at:.1f}">{text}</text>')  # fmt: skip
            x += 62 + 6.6 * len(text)
    return "".join(out)
