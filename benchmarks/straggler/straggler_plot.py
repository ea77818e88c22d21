"""Recall over slowdown, from the figures of straggler_sim.py."""

from __future__ import annotations

import json
from pathlib import Path

_COLOURS = ("#0b6e99", "#c05717", "#3d7d3a", "#7b4fa6")
_RULES = {"nvrx": ("#6b6b6b", "--", "NVRx"), "dlrover": ("#6b6b6b", ":", "DLRover")}


def plot(path: Path, named: dict[str, str]) -> None:
    """Draw it on a light card, which is readable on a dark page too.

    Args:
        path: SVG or PNG; named: label to file of figures.
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "relkit"
    figure = Figure(figsize=(7.0, 3.9), layout="constrained", facecolor="#fcfcfa")
    axes = figure.add_subplot(facecolor="#fcfcfa")
    for colour, (label, file) in zip(_COLOURS, named.items(), strict=False):
        rows = json.loads(Path(file).read_text(encoding="utf-8"))
        for method in ("relkit", *_RULES):
            mine = [row for row in rows if row["method"] == method and row["slowdown"]]
            slow = [100.0 * row["slowdown"] for row in mine]
            found = [100.0 * row["recall"] for row in mine]
            if method == "relkit":
                axes.plot(slow, found, "o-", color=colour, label=f"relkit, {label}")
            else:
                grey, line, name = _RULES[method]
                first = colour == _COLOURS[0]
                axes.plot(slow, found, line, color=grey, label=name if first else None, lw=1.2)
    axes.axhline(99.0, color="#b0b0b0", lw=0.8)
    axes.set(xscale="log", ylim=(-3, 104), xlabel="slowdown, %", ylabel="stragglers found, %")
    ticks = [3, 4, 5, 7, 10, 20, 50]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
