"""Draw the loss of one or several runs from their event streams, as an SVG without any library.

python tools/draw_loss.py output/events/rank_0.jsonl other/events/rank_0.jsonl -o loss.svg
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from relkit.output import write_atomic
from relkit.trainer.telemetry.events import read_events

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 40
# Okabe and Ito's: told apart by colour-blind readers too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

Point = tuple[float, float]


def losses(path: Path) -> list[Point]:
    """(step, loss) of all steps that were finite; of a step that was done again, the last one."""
    found = {
        event["step"]: event["loss"]
        for event in read_events(path)
        if event["event"] == "step" and event["loss"] is not None
    }
    return sorted(found.items())


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from low to high, about as many as wanted."""
    rough = (high - low) / wanted or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def draw(curves: Sequence[tuple[str, Sequence[Point]]], title: str) -> str:
    """The picture; curves have a name and at least one point each."""
    points = [point for _, curve in curves for point in curve]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def place(x: float, y: float) -> Point:
        across = (x - first) / (last - first or 1)
        up = (y - low) / (high - low or 1)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">step</text>',
    ]
    for loss in ticks(low, high):
        _, y = place(first, loss)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{loss:.4g}</text>')
    for step in ticks(first, last, 10):
        x, _ = place(step, low)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{step:g}</text>'
        )
    for number, (name, curve) in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in curve))
        # Later curves are thinner, so that one which lies on another shows both.
        width = 1.4 + 3.2 * (len(curves) - 1 - number)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width:.1f}"/>'
        )
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{TOP + 16 * number + 8}" text-anchor="end"'
            f' fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("events", type=Path, nargs="+", help="[NAME=]FILE.jsonl of one rank")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--title", default="Loss")
    options = parser.parse_args()
    curves = []
    for given in options.events:
        name, equals, file = str(given).rpartition("=")
        curve = losses(Path(file))
        if not curve:
            parser.error(f"{file} has no step with a loss")
        curves.append((name if equals else str(Path(file).parent.parent), curve))
    write_atomic(options.output, draw(curves, options.title))


if __name__ == "__main__":
    main()
