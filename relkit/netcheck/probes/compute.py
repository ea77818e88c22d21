"""How fast a node computes: a matrix product and a copy in memory, a score of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_MATRIX = 512
_COPY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Compute:
    """Figures of one node.

    Args:
        compute_gflops: a float32 matrix product, GFLOP/s, median of its runs.
        memory_gbps: a copy, GB/s, reads and writes both counted.
        devices: the same for each accelerator, by name; empty without one.
    """

    compute_gflops: float = 0.0
    memory_gbps: float = 0.0
    devices: dict[str, dict[str, float]] = field(default_factory=dict)


def measure_compute(time_s: float = 0.5) -> Compute:
    """The CPU through numpy, within about `time_s` (0.05 to 30) seconds."""
    import numpy

    time_s = min(max(time_s, 0.05), 30.0)
    left = numpy.ones((_MATRIX, _MATRIX), dtype=numpy.float32)
    right = numpy.ones_like(left)
    out = numpy.empty_like(left)
    product_s = _median_s(lambda: numpy.matmul(left, right, out=out), time_s / 2)
    source = numpy.ones(_COPY_BYTES, dtype=numpy.uint8)
    target = numpy.zeros_like(source)
    copy_s = _median_s(lambda: numpy.copyto(target, source), time_s / 2)
    return Compute(
        compute_gflops=round(2 * _MATRIX**3 / product_s / 1e9, 2),
        memory_gbps=round(2 * _COPY_BYTES / copy_s / 1e9, 2),
    )


def _median_s(work: Callable[[], object], time_s: float) -> float:
    work()
    times: list[float] = []
    end_s = time.perf_counter() + time_s
    while not times or time.perf_counter() < end_s:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
