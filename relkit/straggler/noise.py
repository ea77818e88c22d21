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
# Steps that are averaged before differences are taken.
SCALES = (1, 2, 4, 8, 16, 32, 64)
_LEAST_ROWS = 4
_GROWTH_WEIGHT = 24.0
_MOST_GROWTH = 2.0
_MOST_VALUES = 4096
_OWN_RATE = 1.0 / 16.0
_MOST_STEP = 6.0
# Few values may be those of a fault that just began: they cannot raise the variance by more.
_ROOM_A_VALUE = 0.25


class _Scale:
    """Differences between successive means of a fixed number of steps."""

    def __init__(self, length: int, shape: tuple[int, int], rows: int, independent: float) -> None:
        self._length = length
        self._independent = independent
        self._moves: deque[Floats] = deque(maxlen=rows)
        self._sum, self._count = np.zeros(shape), 0
        self._last: Floats | None = None
        self.moved = False

    def add(self, excess: Floats) -> None:
        self._sum = self._sum + excess
        self._count += 1
        self.moved = self._count == self._length
        if not self.moved:
            return
        mean = self._sum / self._length
        if self._last is not None:
            self._moves.append(np.abs(mean - self._last))
        self._last, self._sum, self._count = mean, np.zeros_like(mean), 0

    @property
    def known(self) -> bool:
        """There is a difference to go by."""
        return bool(self._moves)

    def values(self) -> float:
        """How many independent differences there are, of all ranks."""
        return self._independent * float(sum(moved.shape[1] for moved in self._moves))

    def variance(self, prior: Floats) -> Floats:
        """Of a single step, were its noise white; leans on `prior`, worth six values."""
        if not self._moves:
            return prior
        together = np.concatenate(list(self._moves), axis=1)
        together = together[:, np.isfinite(together).all(axis=0)]
        count = self._independent * together.shape[1]
        if not count:
            return prior
        rough = np.median(together, axis=1) * _MAD_TO_SIGMA * _ROOT_HALF
        most = prior * (1.0 + _ROOM_A_VALUE * count)
        seen = np.minimum(self._length * rough**2, most)
        found: Floats = (count * seen + PRIOR_WEIGHT * prior) / (count + PRIOR_WEIGHT)
        return found


class NoiseLevel:
    """Relative sigma of each channel and rank, learnt while faults are there.

    It looks at differences between successive steps, in which a lasting slowness cancels out; of
    all ranks together, and of each on its own where that is more. Noise that lasts for several
    steps hides in such differences, and shows in those between means of 2, 4, .. 64 steps: what
    counts is the largest sigma of all of these, each taken back to one step. Few values lean on
    what the shorter scales lead to expect, and the shortest on 5 %.

    Args:
        channels, ranks: shape of what update() gets.
        independent: share of the ranks whose excess does not follow from that of the others.
    """

    def __init__(self, channels: int, ranks: int, independent: float = 1.0) -> None:
        rows = max(_LEAST_ROWS, min(64, _MOST_VALUES // max(ranks, 1)))
        shape = (channels, ranks)
        self._scales = [_Scale(length, shape, rows, independent) for length in SCALES]
        self._last: Floats | None = None
        self._own = np.zeros((channels, ranks))
        self._by_scale = np.full((len(SCALES), channels), PRIOR_SIGMA**2)

    def sigma(self, steps: int = SCALES[-1]) -> Floats:
        """(channels, ranks), relative.

        Args:
            steps: noise that lasts longer than these is left out.
        """
        used = max(1, sum(length <= steps for length in SCALES))
        first, most = np.sqrt(self._by_scale[0]), np.sqrt(self._by_scale[:used].max(axis=0))
        most = np.maximum(most, LEAST_SIGMA)
        # A rank that is noisier than the others is taken to be so at all scales.
        inflation = most / np.maximum(first, LEAST_SIGMA)
        found: Floats = np.maximum(most[:, None], self._own * inflation[:, None])
        return found

    def spread(self) -> Floats:
        """(channels,): of single steps, as they scatter, whatever lasts."""
        found: Floats = np.maximum(np.sqrt(self._by_scale[0]), LEAST_SIGMA)
        return found

    def update(self, excess: Floats) -> None:
        """Take one step.

        Args:
            excess: (channels, ranks), relative; NaN = not known.
        """
        prior = np.full(len(excess), PRIOR_SIGMA**2)
        growth, shorter = np.ones(len(excess)), prior
        for place, scale in enumerate(self._scales):
            scale.add(excess)
            if scale.moved:
                self._by_scale[place] = scale.variance(prior)
            elif not scale.known:
                self._by_scale[place] = prior
            if place and scale.known:
                weight = scale.values() / (scale.values() + _GROWTH_WEIGHT)
                ratio = self._by_scale[place] / shorter
                growth = np.clip(1.0 + weight * (ratio - 1.0), 1.0, _MOST_GROWTH)
            shorter = self._by_scale[place]
            # Until a longer scale is seen, it is assumed to go on as the shorter ones did.
            prior = shorter * growth
        if self._last is not None:
            most = _MOST_STEP * self.spread()[:, None]
            bounded = np.fmin(np.abs(excess - self._last), most) * _MEAN_TO_SIGMA
            known = np.isfinite(bounded) & np.isfinite(excess) & np.isfinite(self._last)
            self._own[known] += _OWN_RATE * (bounded[known] - self._own[known])
        self._last = excess
