"""What a soak measures at one moment, and whether it stays as it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.process import procfs
from tools.resident_memory import resident_bytes

# The first part of a run, in which everything still grows.
_WARM_UP_SHARE = 0.2
_BINS = 24
# A line through the medians may rise by so much of the whole, over the rest of the run.
MAX_RISE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Use:
    """What one process holds.

    Args:
        descriptors, threads: how many.
        memory_bytes: resident.
    """

    descriptors: int
    threads: int
    memory_bytes: int


def use_of(pid: int) -> Use | None:
    """What a process holds; None where it is gone."""
    memory_bytes = resident_bytes(pid)
    try:
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return None
    threads = len(procfs.thread_ids(pid))
    return Use(descriptors, threads, memory_bytes) if memory_bytes and threads else None


def shared_memory_of(folder: Path) -> tuple[int, int]:
    """Files below a folder, and the bytes that they take."""
    files = size_bytes = 0
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        files += path.is_file()
        size_bytes += status.st_blocks * 512
    return files, size_bytes


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity over the run.

    Args:
        panel: which of the figure's panels it belongs to; name: within that.
        unit: of the values.
        least_rise: what is no rise, however little the whole is.
        points: (seconds, value).
    """

    panel: str
    name: str
    unit: str
    least_rise: float
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a curve is flat.

    Args:
        middle: median; rise: of the fitted line from the end of the warm-up to the end of the run;
            bound: the largest rise that is flat.
    """

    middle: float
    rise: float
    bound: float

    @property
    def is_flat(self) -> bool:
        """It does not grow, and something was measured."""
        return math.isfinite(self.rise) and self.rise <= self.bound


def judge(curve: Curve) -> Verdict:
    """Fit a line by least squares to the medians of equal parts of the run, without the warm-up."""
    points = curve.points
    if len(points) < 2:
        return Verdict(math.nan, math.nan, math.nan)
    first, last = points[0][0], points[-1][0]
    begin = first + _WARM_UP_SHARE * (last - first)
    parts: dict[int, list[tuple[float, float]]] = {}
    for time_s, value in points:
        if time_s >= begin:
            parts.setdefault(int(_BINS * (time_s - begin) / (last - begin or 1)), []).append(
                (time_s, value)
            )
    medians = [tuple(map(statistics.median, zip(*part, strict=True))) for part in parts.values()]
    if len(medians) < 2:
        return Verdict(math.nan, math.nan, math.nan)
    slope, _ = statistics.linear_regression(*zip(*medians, strict=True))
    middle = statistics.median(value for _, value in points)
    bound = max(curve.least_rise, MAX_RISE_SHARE * middle)
    return Verdict(middle, slope * (last - begin), bound)


def table(curves: Sequence[Curve]) -> str:
    """One line a curve."""
    lines = ["what                          median        rise  allowed"]
    for curve in curves:
        verdict = judge(curve)
        lines.append(
            f"{curve.panel + ', ' + curve.name:28}"
            f"{verdict.middle:8.1f} {curve.unit:3} {verdict.rise:+8.2f} {verdict.bound:8.2f}  "
            + ("flat" if verdict.is_flat else "NOT FLAT")
        )
    return "\n".join(lines)
