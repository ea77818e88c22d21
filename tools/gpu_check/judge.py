"""From figures to outcomes; pure, so that it can be tried where no GPU is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from relkit.findings import Status
from tools.gpu_check.outcome import Outcome

FLOPS_OFF = 0.01
MOST_OVERHEAD = 0.005
# A device that reaches less than half of its data sheet is throttled, shared, or mismeasured.
LEAST_OF_DATASHEET, MOST_OF_DATASHEET = 0.5, 1.05
_DRAWS = 4000


def flops(recorded: int, expected: int, products: int) -> Outcome:
    """Recorded floating point operations against those that were asked for."""
    off = recorded / expected - 1.0 if expected else float("nan")
    good = abs(off) <= FLOPS_OFF
    return Outcome(
        "GEMM FLOPs", Status.OK if good else Status.FAIL,
        f"{recorded:.6g} recorded of {expected:.6g} in {products} products: {off:+.2%}",
        {"recorded_flops": recorded, "expected_flops": expected},
    )  # fmt: skip


def overhead(plain_s: Sequence[float], hooked_s: Sequence[float]) -> Outcome:
    """Median step times of alternated runs, with and without the hook.

    Args:
        plain_s, hooked_s: one median a run, s, in the order in which they ran.
    """
    ratios = np.array([h / p for p, h in zip(plain_s, hooked_s, strict=True)])
    rng = np.random.default_rng(0)
    drawn = np.median(rng.choice(ratios, (_DRAWS, len(ratios))), axis=1)
    low, high = (float(value) - 1.0 for value in np.quantile(drawn, (0.025, 0.975)))
    middle = float(np.median(ratios)) - 1.0
    status = Status.OK if middle <= MOST_OVERHEAD else Status.UNKNOWN
    if low > MOST_OVERHEAD:
        status = Status.FAIL
    return Outcome(
        "overhead", status,
        f"a step takes {middle:+.2%} (95 %: {low:+.2%} to {high:+.2%}) with the hook, "
        f"{1e3 * median(plain_s):.2f} ms without",
        {"overhead": round(middle, 5), "low": round(low, 5), "high": round(high, 5)},
    )  # fmt: skip


def launches(name: str, few: int, many: int, more: int) -> Outcome:
    """A second run with `more` additional launches must show so many more of them.

    Args:
        name: of the check; few, many: hooked operations in the first and second run.
    """
    seen = many - few
    good = abs(seen - more) <= max(2, 0.01 * more)
    return Outcome(
        name, Status.OK if good else Status.FAIL,
        f"{more} more launches, {seen} more recorded", {"asked": more, "recorded": seen},
    )  # fmt: skip


def collectives(said: Mapping[str, object], started: int, sizes: set[int], world: int) -> Outcome:
    """Recorded all-reduces of one rank against those that were asked for."""
    times, size = said.get("times"), said.get("size_bytes")
    good = started == times and sizes == {size} and said.get("right") is True
    return Outcome(
        f"NCCL, {world} rank(s)", Status.OK if good else Status.FAIL,
        f"{started} all-reduces of {sorted(sizes)} bytes recorded, {times} of {size} asked for; "
        f"result {'right' if said.get('right') is True else 'WRONG'}",
        {"recorded": started},
    )  # fmt: skip


def compute(name: str, stated: tuple[float, float] | None, tflops: float, gbps: float) -> Outcome:
    """netcheck's compute probe against the device's data sheet."""
    figures = {"fp16_tflops": round(tflops, 1), "memory_gbps": round(gbps, 1)}
    seen = f"{tflops:.0f} TFLOP/s float16 and {gbps:.0f} GB/s"
    if stated is None:
        return Outcome("compute probe", Status.UNKNOWN, f"{seen}; {name} is not listed", figures)
    shares = (tflops / stated[0], gbps / stated[1])
    good = all(LEAST_OF_DATASHEET <= share <= MOST_OF_DATASHEET for share in shares)
    return Outcome(
        "compute probe", Status.OK if good else Status.FAIL,
        f"{seen}: {shares[0]:.0%} and {shares[1]:.0%} of the data sheet of {name}", figures,
    )  # fmt: skip
