"""From figures to outcomes; pure, so that it can be tried where no GPU is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from relkit.findings import Status
from tools.gpu_check.outcome import Outcome

FLOPS_OFF = 0.01
MAX_OVERHEAD = 0.005
# A device that reaches less than half of its data sheet is throttled, shared, or mismeasured.
MIN_OF_DATASHEET, MAX_OF_DATASHEET = 0.5, 1.05
_DRAWS = 4000
# float32 on both, summed in another order, over as many steps as a loss may drift.
MAX_LOSS_OFF = 1e-3


def flops(recorded: int, expected: int, products: int) -> Outcome:
    """Recorded floating point operations against those that were asked for."""
    off = recorded / expected - 1.0 if expected else float("nan")
    good = abs(off) <= FLOPS_OFF
    return Outcome(
        "GEMM FLOPs", Status.OK if good else Status.FAIL,
        f"{recorded:.6g} recorded of {expected:.6g} in {products} products: {off:+.2%}",
        {"recorded_flops": recorded, "expected_flops": expected},
    )  # fmt: skip


def overhead(bare_s: Sequence[float], hooked_s: Sequence[float]) -> Outcome:
    """Median step times of runs with the hook, each between two without it.

    Two runs without the hook differ as well, and no smaller difference can be told from that.

    Args:
        bare_s: n + 1 medians, one a run without the hook, s, in the order in which they ran.
        hooked_s: n medians, each of the run between two of those.
    """
    before, after, hooked = map(np.asarray, (bare_s[:-1], bare_s[1:], hooked_s))
    ratios = hooked / ((before + after) / 2)
    noise = float(np.median(np.abs(after / before - 1.0)))
    rng = np.random.default_rng(0)
    drawn = np.median(rng.choice(ratios, (_DRAWS, len(ratios))), axis=1)
    low, high = (float(value) - 1.0 for value in np.quantile(drawn, (0.025, 0.975)))
    middle = float(np.median(ratios)) - 1.0
    status = Status.OK if max(middle, noise) <= MAX_OVERHEAD else Status.UNKNOWN
    if low > max(MAX_OVERHEAD, noise):
        status = Status.FAIL
    return Outcome(
        "overhead", status,
        f"a step takes {middle:+.2%} (95 %: {low:+.2%} to {high:+.2%}) with the hook, "
        f"{1e3 * median(bare_s):.2f} ms without; two runs without it differ by {noise:.2%}",
        {
            "overhead": round(middle, 5), "low": round(low, 5), "high": round(high, 5),
            "noise": round(noise, 5),
        },
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


def late_rank(
    code: int, captured: int, report: Mapping[str, Any], tail: str, took_s: float
) -> Outcome:
    """The report of a job of two ranks whose second did not come to a collective."""
    findings = report.get("findings", [])
    titles = [finding["title"] for finding in findings]
    good = code == 1 and captured == 2 and report.get("culprits") == [1]
    return Outcome(
        "late rank", Status.OK if good else Status.FAIL,
        f"{titles[0] if titles else tail}; {captured} of 2 ranks captured, {took_s:.0f} s",
        {"took_s": round(took_s, 1), "captured": captured},
    )  # fmt: skip


def flash(code: int, said: Mapping[str, Any], tail: str) -> Outcome:
    """What a job says that was killed right after it had asked for the save of step 8.

    Args:
        tail: what relkit has said meanwhile, for where it did not work.
    """
    if code or not said:
        return Outcome("flash checkpoint", Status.FAIL, f"the job ended with {code}: {tail}")
    resumed, right = int(said["resumed"]), said["right"] is True
    if not resumed:
        why = f"killed at step 8, began anew, as nothing was in memory or on disk: {tail}"
        return Outcome("flash checkpoint", Status.FAIL, why, {"resumed": 0})
    size_mb, save_ms = said["size_bytes"] / 1e6, 1e3 * said["save_s"]
    good = right and resumed in (7, 8)
    return Outcome(
        "flash checkpoint", Status.OK if good else Status.FAIL,
        f"killed at step 8, resumed from step {resumed}, "
        f"{'every bit right' if right else 'NOT the saved state'}; a save of "
        f"{size_mb:.0f} MB holds the step for {save_ms:.1f} ms",
        {"resumed": resumed, "size_mb": round(size_mb), "save_ms": round(save_ms, 2)},
    )  # fmt: skip


def losses(expected: Sequence[float], seen: Sequence[float], steps: int) -> Outcome:
    """Losses on NCCL against those on gloo, step by step."""
    if len(expected) != steps or len(seen) != steps:
        sentence = f"{len(expected)} and {len(seen)} steps were logged of {steps}"
        return Outcome("trainer", Status.FAIL, sentence)
    off = max(abs(n / g - 1.0) for g, n in zip(expected, seen, strict=True))
    return Outcome(
        "trainer", Status.OK if off <= MAX_LOSS_OFF else Status.FAIL,
        f"losses of {steps} steps of two tensor-parallel ranks on NCCL are within {off:.1e} of "
        f"gloo's; the last is {seen[-1]:.4f}",
        {"largest_difference": f"{off:.1e}", "last_loss": round(seen[-1], 4)},
    )  # fmt: skip


def compute(name: str, stated: tuple[float, float] | None, tflops: float, gbps: float) -> Outcome:
    """netcheck's compute probe against the device's data sheet."""
    figures = {"fp16_tflops": round(tflops, 1), "memory_gbps": round(gbps, 1)}
    seen = f"{tflops:.0f} TFLOP/s float16 and {gbps:.0f} GB/s"
    if stated is None:
        return Outcome("compute probe", Status.UNKNOWN, f"{seen}; {name} is not listed", figures)
    shares = (tflops / stated[0], gbps / stated[1])
    good = all(MIN_OF_DATASHEET <= share <= MAX_OF_DATASHEET for share in shares)
    return Outcome(
        "compute probe", Status.OK if good else Status.FAIL,
        f"{seen}: {shares[0]:.0%} and {shares[1]:.0%} of the data sheet of {name}", figures,
    )  # fmt: skip
