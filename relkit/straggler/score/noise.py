"""How much a rank's slowdown moves from step to step when nothing is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from relkit.straggler.model import Flags, Floats, Ints
from relkit.straggler.score.ewma import ewma

PRIOR_SIGMA = 0.05
PRIOR_WEIGHT = 6.0
MIN_SIGMA = 0.002
_MAD_TO_SIGMA = 1.4826
_MEAN_TO_SIGMA = 0.8862
_ROOT_HALF = 0.7071
# Steps that are averaged before differences are taken.
SCALES = (1, 2, 4, 8, 16, 32, 64)
_MIN_ROWS = 4
_GROWTH_WEIGHT = 24.0
_MAX_GROWTH = 2.0
_MAX_VALUES = 4096
_OWN_RATE = 1.0 / 16.0
_MAX_STEP = 6.0
# Few values may be those of a fault that just began: they cannot raise the variance by more.
_ROOM_A_VALUE = 0.25


class _Scale:
    """Differences between successive means of a fixed number of steps."""

    def __init__(self, length: int, shape: tuple[int, int], rows: int, independent: float) -> None:
        self._length, self._rows = length, rows
        self._independent = independent
        self._moves: Floats = np.empty((0, *shape))
        self._sum, self._count = np.zeros(shape), 0
        self._last: Floats | None = None
        self._variance = np.full(shape[0], PRIOR_SIGMA**2)

    def update(self, slowdown: Floats, prior: Floats) -> tuple[Floats, Floats]:
        """Take some steps.

        Args:
            slowdown: (steps, features, ranks); prior: (steps, features), what shorter scales lead
                to expect at each of them.

        Returns:
            (steps, features) variance of a single step, were the noise white, as known after each;
            (steps,) how many independent differences, of all ranks, that goes by.
        """
        steps, before = len(slowdown), len(self._moves)
        places = self._take(slowdown)
        fresh = len(self._moves) - before
        # Of the differences those that came with these steps.
        at = places[len(places) - fresh :]
        known = before + np.searchsorted(at, np.arange(steps), side="right")
        values = self._independent * slowdown.shape[2] * np.minimum(known, self._rows)
        if not fresh:
            variance = np.broadcast_to(self._variance, prior.shape) if before else prior
        else:
            fresh_variances = self._variances(before + np.arange(fresh), prior[at])
            table = np.concatenate([self._variance[None], fresh_variances])
            variance = np.where((known > 0)[:, None], table[known - before], prior)
        self._variance = variance[-1].copy()
        self._moves = self._moves[-self._rows :]
        return variance, values

    def _take(self, slowdown: Floats) -> Ints:
        """Append the new differences; at which steps a mean became complete."""
        length, steps = self._length, len(slowdown)
        first = length - self._count - 1
        if first >= steps:
            self._sum = self._sum + slowdown.sum(axis=0)
            self._count += steps
            return np.empty(0, np.int64)
        whole = (steps - first - 1) // length
        rest = first + 1 + whole * length
        shape = slowdown.shape[1:]
        sums = [
            (self._sum + slowdown[: first + 1].sum(axis=0))[None],
            slowdown[first + 1 : rest].reshape(whole, length, *shape).sum(axis=1),
        ]
        means = np.concatenate(sums) / length
        if self._last is not None:
            means = np.concatenate([self._last[None], means])
        self._moves = np.concatenate([self._moves, np.abs(np.diff(means, axis=0))])
        self._last = means[-1]
        self._sum, self._count = slowdown[rest:].sum(axis=0), steps - rest
        return first + length * np.arange(whole + 1)

    def _variances(self, ends: Ints, priors: Floats) -> Floats:
        """Of the stretches of differences that end with these; each leans on its prior.

        Args:
            ends: places in _moves, one after the other; priors: (len(ends), features), worth six
                values each.
        """
        first = int(ends[0]) - self._rows + 1
        used = self._moves[max(0, first) :].copy()
        whole: Flags = np.asarray(np.isfinite(used).all(axis=1))
        known = whole.sum(axis=1)
        if first < 0:
            missing = np.full((-first, *used.shape[1:]), np.inf)
            used, known = np.concatenate([missing, used]), np.append(np.zeros(-first, int), known)
        if not whole.all():
            used[-len(whole) :].transpose(0, 2, 1)[~whole] = np.inf
        count = sliding_window_view(known, self._rows).sum(axis=1)
        stretches = sliding_window_view(used, self._rows, axis=0)
        middle = _middles(stretches.reshape(*stretches.shape[:2], -1), count)
        weight = self._independent * count[:, None]
        most = priors * (1.0 + _ROOM_A_VALUE * weight)
        rough = np.where(count[:, None] > 0, middle, 0.0) * _MAD_TO_SIGMA * _ROOT_HALF
        seen = np.minimum(self._length * rough**2, most)
        variances: Floats = (weight * seen + PRIOR_WEIGHT * priors) / (weight + PRIOR_WEIGHT)
        return variances


def _middles(values: Floats, count: Ints) -> Floats:
    """Medians over the last axis of the values that are not infinite.

    Args:
        values: (stretches, features, values); count: (stretches,), how many those are.
    """
    most = values.shape[2]
    if (count == most).all():
        medians: Floats = np.median(values, axis=2)
        return medians
    ordered = np.sort(values, axis=2)
    stretch = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, most - 1)
    middle: Floats = 0.5 * (ordered[stretch, :, low] + ordered[stretch, :, high])
    return middle


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of the noise after each of some steps.

    Args:
        by_scale: (steps, scales, features), variance of a single step; own: (steps, features,
            ranks), relative.
    """

    by_scale: Floats
    own: Floats

    def sigma(self, steps: int = SCALES[-1]) -> Floats:
        """(steps, features, ranks), relative.

        Args:
            steps: noise that lasts longer than these is left out.
        """
        used = max(1, sum(length <= steps for length in SCALES))
        first = np.sqrt(self.by_scale[:, 0])
        most = np.maximum(np.sqrt(self.by_scale[:, :used].max(axis=1)), MIN_SIGMA)
        # A rank that is noisier than the others is taken to be so at all scales.
        inflation = most / np.maximum(first, MIN_SIGMA)
        sigmas: Floats = np.maximum(most[:, :, None], self.own * inflation[:, :, None])
        return sigmas

    def spread(self) -> Floats:
        """(steps, features): of single steps, as they scatter, whatever lasts."""
        spreads: Floats = np.maximum(np.sqrt(self.by_scale[:, 0]), MIN_SIGMA)
        return spreads


class NoiseLevel:
    """Relative sigma of each feature and rank, learnt while faults are there.

    It looks at differences between successive steps, in which a lasting slowness cancels out; of
    all ranks together, and of each on its own where that is more. Noise that lasts for several
    steps hides in such differences, and shows in those between means of 2, 4, .. 64 steps: what
    counts is the largest sigma of all of these, each taken back to one step. Few values lean on
    what the shorter scales lead to expect, and the shortest on 5 %.

    Args:
        features, ranks: shape of what a step has.
        independent: share of the ranks whose slowdown does not follow from that of the others.
    """

    def __init__(self, features: int, ranks: int, independent: float = 1.0) -> None:
        rows = max(_MIN_ROWS, min(64, _MAX_VALUES // max(ranks, 1)))
        shape = (features, ranks)
        self._scales = [_Scale(length, shape, rows, independent) for length in SCALES]
        self._last: Floats | None = None
        self._own = np.zeros((features, ranks))

    def update(self, slowdown: Floats) -> Noise:
        """Take some steps, and say what is known after each.

        Args:
            slowdown: (steps, features, ranks), relative; NaN = not known.
        """
        shape = slowdown.shape[:2]
        prior, growth = np.full(shape, PRIOR_SIGMA**2), np.ones(shape)
        shorter: Floats | None = None
        by_scale = np.empty((shape[0], len(SCALES), shape[1]))
        for place, scale in enumerate(self._scales):
            variance, values = scale.update(slowdown, prior)
            by_scale[:, place] = variance
            if shorter is not None:
                weight = (values / (values + _GROWTH_WEIGHT))[:, None]
                ratio = np.clip(1.0 + weight * (variance / shorter - 1.0), 1.0, _MAX_GROWTH)
                growth = np.where((values > 0)[:, None], ratio, growth)
            shorter = variance
            # Until a longer scale is seen, it is assumed to go on as the shorter ones did.
            prior = variance * growth
        spread = np.maximum(np.sqrt(by_scale[:, 0]), MIN_SIGMA)
        return Noise(by_scale, self._learn_own(slowdown, spread))

    def _learn_own(self, slowdown: Floats, spread: Floats) -> Floats:
        """How much each rank itself moves from step to step, (steps, features, ranks)."""
        first = np.full_like(slowdown[:1], np.nan) if self._last is None else self._last[None]
        moves = np.abs(np.diff(np.concatenate([first, slowdown]), axis=0))
        self._last = slowdown[-1]
        known = np.isfinite(moves)
        bounded = np.fmin(np.nan_to_num(moves), _MAX_STEP * spread[:, :, None]) * _MEAN_TO_SIGMA
        return ewma(self._own, bounded, np.where(known, _OWN_RATE, 0.0))
