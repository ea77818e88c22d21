"""Which devices are slower than the others of their kind, or than they were before (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from relkit.netcheck.device_score import DeviceScore
from relkit.netcheck.solve.robust import healthy_level

FIGURES = (("compute_gflops", "arithmetic", "GFLOP/s"), ("memory_gbps", "memory bandwidth", "GB/s"))
# One figure of a device scatters by this much before any of it has been seen.
_PRIOR_SIGMA = 0.02
_PRIOR_WEIGHT = 4.0
_MAD_TO_SIGMA = 1.4826
# The median of a few values is this much less sure than their mean.
_MEDIAN_TO_MEAN = 1.2533
# A fleet has thousands of devices, and noise has longer tails than a bell curve.
_SIGMAS = 4.5
# A device that lacks this many times the allowed share is mentioned even where noise explains it.
_FAR = 2.0


@dataclass(frozen=True, slots=True)
class LowDevice:
    """One device whose figure is too low.

    Args:
        node, device: which; figure: a field of DeviceScore.
        value: its median over the rounds; usual: what it was held against, in the same unit.
        sigma: relative scatter of such a median.
        against: "the other cpus", "its baseline".
        rounds: how many rounds there were.
        is_certain: whether it is lower than scatter between the rounds can explain.
    """

    node: str
    device: str
    figure: str
    value: float
    usual: float
    sigma: float
    against: str
    rounds: int
    is_certain: bool

    @property
    def slowdown(self) -> float:
        """How much longer the same work takes, as a share: 0.25 = 25 % longer."""
        return self.usual / self.value - 1.0


def low_devices(
    scores: Sequence[DeviceScore],
    slow_fraction: float,
    baseline: Sequence[DeviceScore] = (),
) -> tuple[LowDevice, ...]:
    """Devices below their kind's level, or below their own baseline; slowest first.

    The level is the healthy part's, not the median: of two devices the faster one shows what can
    be had. A device is slow for certain where scatter between its own rounds does not explain
    what is missing. Where it does, a device that is far too low is listed all the same.

    Args:
        scores: of this run; baseline: of an earlier good one, matched by node and device.
        slow_fraction: share that may be missing, 0..1.
    """
    before = {(score.node, score.device): score for score in baseline}
    low: list[LowDevice] = []
    for figure, _, _ in FIGURES:
        by_kind: dict[tuple[str, str], list[DeviceScore]] = defaultdict(list)
        for score in scores:
            if _values(score, figure):
                by_kind[score.kind, score.model].append(score)
        for (kind, _), alike in by_kind.items():
            sigma = _scatter(_values(score, figure) for score in alike)
            level = healthy_level(np.array([median(_values(score, figure)) for score in alike]))
            for score in alike:
                values = _values(score, figure)
                held = [(level, f"the other {kind} devices")] if len(alike) > 1 else []
                if old := _values(before.get((score.node, score.device)), figure):
                    held.append((median(old), "its baseline"))
                # Of two ways to say the same, the one that shows more.
                usual, against = max(held, default=(0.0, ""))
                mine = _MEDIAN_TO_MEAN * max(sigma, _scatter([values])) / np.sqrt(len(values))
                value = median(values)
                is_certain = bool(value < (1.0 - _SIGMAS * mine) * usual)
                may_lack = slow_fraction if is_certain else _FAR * slow_fraction
                if value < max(1.0 - may_lack, 0.0) * usual:
                    low.append(
                        LowDevice(
                            score.node, score.device, figure, value, usual,
                            float(mine), against, len(values), is_certain,
                        )
                    )  # fmt: skip
    return tuple(sorted(low, key=lambda device: -device.slowdown))


def _values(score: DeviceScore | None, figure: str) -> tuple[float, ...]:
    values: tuple[float, ...] = () if score is None else getattr(score, figure)
    return values


def _scatter(groups: Iterable[Sequence[float]]) -> float:
    """Relative sigma of one figure, from differences between successive rounds of one device.

    Of three values one is their median: distances from it would look a third too small.
    """
    pairs = [pair for values in groups for pair in pairwise(values)]
    off = np.array([2.0 * abs(first - second) / (first + second) for first, second in pairs])
    # A single round that went wrong must not hide what is slow in all of them.
    most = 3.0 * float(np.median(off)) * _MAD_TO_SIGMA if len(off) else 0.0
    total = float(np.sum(np.minimum(off, most) ** 2)) / 2.0 + _PRIOR_WEIGHT * _PRIOR_SIGMA**2
    return float(np.sqrt(total / (len(off) + _PRIOR_WEIGHT)))
