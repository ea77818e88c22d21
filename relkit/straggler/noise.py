"""How much a rank's excess moves from step to step when nothing is wrong."""

from __future__ import annotations

from collections import deque

import numpy as np

from relkit.straggler.model import Floats

PRIOR_SIGMA = 0.05
PRIOR_WEIGHT = 6.0
LEAST_SIGMA = 0.002
_MAD_TO_SIGMA = 1.4826
_MEAN_TO_SIGMA = 0.8862
_ROOT_HALF = 0.7071
_BATCH = 4
_MOST_VALUES = 4096
_OWN_RATE = 1.0 / 16.0
_MOST_STEP = 6.0


class NoiseLevel:
    """Relative sigma of each channel and rank, learnt while faults are there.

    It looks at differences between successive steps, in which a lasting slowness cancels out; of
    all ranks together, and of each on its own where that is more. Noise that lasts for several
    steps hides in such differences: those between means of four steps show it. Few values lean on
    5 %, worth six.

    Args:
        channels, ranks: shape of what update() gets.
    """

    def __init__(self, channels: int, ranks: int) -> None:
        rows = max(_BATCH, min(64, _MOST_VALUES // max(ranks, 1)))
        self._single: deque[Floats] = deque(maxlen=rows)
        self._batched: deque[Floats] = deque(maxlen=rows)
        self._last: Floats | None = None
        self._last_batch: Floats | None = None
        self._sum = np.zeros((channels, ranks))
        self._count = 0
        self._own = np.zeros((channels, ranks))
        self._pooled = np.full(channels, PRIOR_SIGMA)

    def sigma(self) -> Floats:
        """(channels, ranks), relative."""
        found: Floats = np.maximum(self._pooled[:, None], self._own)
        return found

    def update(self, excess: Floats) -> None:
        """Take one step.

        Args:
            excess: (channels, ranks), relative; NaN = not known.
        """
        if self._last is not None:
            moved = np.abs(excess - self._last)
            self._single.append(moved)
            self._pool()
            bounded = np.fmin(moved, _MOST_STEP * self._pooled[:, None]) * _MEAN_TO_SIGMA
            known = np.isfinite(bounded)
            self._own[known] += _OWN_RATE * (bounded[known] - self._own[known])
        self._last = excess
        self._sum += np.where(np.isfinite(excess), excess, 0.0)
        self._count += 1
        if self._count == _BATCH:
            mean = self._sum / _BATCH
            if self._last_batch is not None:
                self._batched.append(np.abs(mean - self._last_batch))
            self._last_batch = mean
            self._sum, self._count = np.zeros_like(mean), 0

    def _pool(self) -> None:
        short = _pooled(self._single)
        if self._batched:
            # sqrt(4) turns the sigma of a mean of four into the one that it stands for.
            short = np.maximum(short, _pooled(self._batched) * np.sqrt(_BATCH))
        self._pooled = np.maximum(short, LEAST_SIGMA)


def _pooled(moves: deque[Floats]) -> Floats:
    """Sigma of one value by the sizes of differences of two."""
    together = np.concatenate(list(moves), axis=1)
    together = together[:, np.isfinite(together).all(axis=0)]
    count = together.shape[1]
    rough = np.zeros(len(together))
    if count:
        rough = np.median(together, axis=1) * _MAD_TO_SIGMA * _ROOT_HALF
    variance = (count * rough**2 + PRIOR_WEIGHT * PRIOR_SIGMA**2) / (count + PRIOR_WEIGHT)
    found: Floats = np.sqrt(variance)
    return found
