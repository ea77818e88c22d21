"""Axes: round numbers for ticks, and steps on the x axis that all straggler charts share."""

from __future__ import annotations

import math
from dataclasses import dataclass

GUTTER, PLOT, MARGIN = 142.0, 864.0, 116.0
"""Pixels for names on the left, for the steps, and for names on the right."""
WIDTH = GUTTER + PLOT + MARGIN


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps on the x axis.

    Args:
        first: number of the first; count: how many, at least 1.
    """

    first: int
    count: int

    def x(self, step: float) -> float:
        """Where a step begins, px; those outside are moved to the edge."""
        share = (step - self.first) / max(self.count, 1)
        return GUTTER + PLOT * min(1.0, max(0.0, share))

    def axis(self, y: float) -> str:
        """Ticks, numbers and the axis' name below `y`."""
        out = [f'<path class="axis" d="M{GUTTER:.0f} {y:.1f}h{PLOT:.0f}"/>']
        for tick in ticks(self.first, self.first + self.count, 9):
            if tick == int(tick):
                x = self.x(tick)
                out.append(f'<path class="axis" d="M{x:.1f} {y:.1f}v4"/>')
                out.append(f'<text x="{x:.1f}" y="{y + 17:.1f}" class="middle">{tick:,.0f}</text>')
        end = GUTTER + PLOT + 24
        out.append(f'<text x="{end:.1f}" y="{y + 17:.1f}" class="name">step</text>')
        return "".join(out)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high, `most` at most: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not (span > 0 and math.isfinite(span)) or most < 1:
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    size = next(f * power for f in (1, 2, 5, 10) if f * power >= raw * 0.999999)
    start = math.ceil(low / size - 1e-9)
    return [i * size for i in range(start, math.floor(high / size + 1e-9) + 1)]
