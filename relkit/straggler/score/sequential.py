"""Sequential tests: evidence adds up step by step, so that a verdict comes as soon as it may."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints

# No single step counts for more: one transient slowdown is never a straggler.
MAX_PER_STEP = 3.0
# Evidence beyond the limit is kept up to here, so that a fault that has gone is soon forgotten.
_BEYOND = 6.0
# One pause in so many steps is taken to be usual before any was seen.
_BURST_PRIOR = 200.0
_MIN_OFTEN = 0.1
_FORGET = 1.0 / 512.0


class Cusum:
    """Evidence that adds up from step to step: the log-likelihood of slow against healthy.

    It is never below 0, nor far beyond the limit.

    Args:
        shape: one test each; the last axis is what is tested. limit: log-likelihood
            at which it is decided.
    """

    def __init__(self, shape: tuple[int, ...], limit: float) -> None:
        self._max = limit + _BEYOND
        # The evidence, and the step in which it began to gather.
        self.log_likelihood: Floats = np.zeros(shape)
        self.onset: Ints = np.full(shape, -1, dtype=np.int64)

    def add(self, step: int, ratio: Floats) -> None:
        """Take the log-likelihood ratio of one step."""
        fresh = (self.log_likelihood <= 0.0) & (ratio > 0.0)
        self.onset[fresh] = step
        np.clip(self.log_likelihood + ratio, 0.0, self._max, out=self.log_likelihood)

    def scan(self, ratio: Floats) -> Floats:
        """The evidence after each of some steps, were none of it forgotten; nothing is kept.

        Args:
            ratio: (steps, ...), what they say.
        """
        sums = np.empty_like(ratio)
        before = self.log_likelihood
        for step, after in zip(ratio, sums, strict=True):
            np.add(before, step, out=after)
            np.maximum(after, 0.0, out=after)
            np.minimum(after, self._max, out=after)
            before = after
        return sums

    def keep(self, steps: Ints, ratio: Floats, log_likelihood: Floats) -> None:
        """Go on from the result of scan().

        Args:
            steps: their numbers; ratio, log_likelihood: what scan() took and returned, as far
                as it holds.
        """
        fresh = ratio > 0.0
        fresh[0] &= self.log_likelihood <= 0.0
        fresh[1:] &= log_likelihood[:-1] <= 0.0
        latest = len(steps) - 1 - np.argmax(fresh[::-1], axis=0)
        np.copyto(self.onset, steps[latest], where=fresh.any(axis=0))
        self.log_likelihood[...] = log_likelihood[-1]

    def forget(self, which: Flags) -> None:
        """All evidence against these, on the last axis."""
        self.log_likelihood[..., which] = 0.0

    def best(self) -> tuple[Floats, Ints]:
        """(log-likelihood, step of onset) of the strongest of the tests on the first axis."""
        which = np.argmax(self.log_likelihood, axis=0)[None]
        log_likelihood: Floats = np.take_along_axis(self.log_likelihood, which, axis=0)[0]
        onset: Ints = np.take_along_axis(self.onset, which, axis=0)[0]
        return log_likelihood, onset


class ShiftTest(Cusum):
    """CUSUM of the log-likelihood ratio of slow against healthy, for several slownesses.

    Args:
        shifts: relative slownesses to test for, ascending; slowdown up to half of the first counts
            as healthy.
        shape: of what update() gets.
        limit: log-likelihood at which it is decided.
    """

    def __init__(self, shifts: tuple[float, ...], shape: tuple[int, ...], limit: float) -> None:
        super().__init__((len(shifts), *shape), limit)
        self._shifts = np.array(shifts).reshape((-1,) + (1,) * len(shape))

    def update(self, step: int, slowdown: Floats, sigma: Floats) -> None:
        """Take one step.

        Args:
            slowdown, sigma: relative; NaN in slowdown = not known, which is no evidence. sigma may
                differ by the slowness tested for, on an axis before those of slowdown.
        """
        self.add(step, self.ratio(slowdown, sigma))

    def ratio(self, slowdown: Floats, sigma: Floats) -> Floats:
        """What each step says, in log_likelihood: what add() and scan() take.

        Args:
            slowdown, sigma: as in update(); both may have an axis of steps before all others, and
                then slowdown one of length 1 after it.
        """
        ratio = self._shifts / sigma**2 * (slowdown - 0.5 * self._shifts)
        bounded: Floats = np.clip(np.nan_to_num(ratio), -MAX_PER_STEP, MAX_PER_STEP)
        return bounded


class BurstTest(Cusum):
    """The same for pauses that come now and then: are they more frequent than everybody's?

    Only of those that the host is known to have made (garbage collection, throttling). A pause
    without a known reason may be a save, a log or an evaluation, and is held against nobody.

    Args:
        ranks: how many; limit: log-likelihood at which it is decided.
    """

    def __init__(self, ranks: int, limit: float) -> None:
        super().__init__((1, ranks), limit)
        self._hits, self._seen = np.zeros(ranks), np.zeros(ranks)

    def ratio(self, hit: Flags, known: Flags) -> Floats:
        """What some steps say, in log_likelihood: what add() and scan() take. They are learnt from.

        Args:
            hit: (steps, ranks), who paused for a known reason; known: of whom anything is known.
        """
        before, seen = np.empty(hit.shape), np.empty(hit.shape)
        before[0], seen[0] = self._hits, self._seen
        for place in range(1, len(hit)):
            np.multiply(before[place - 1], 1.0 - _FORGET, out=before[place])
            before[place] += hit[place - 1]
            np.multiply(seen[place - 1], 1.0 - _FORGET, out=seen[place])
            seen[place] += known[place - 1]
        self._hits = (1.0 - _FORGET) * before[-1] + hit[-1]
        self._seen = (1.0 - _FORGET) * seen[-1] + known[-1]
        # Everybody else's frequency; a rare one is assumed to begin with.
        others = before.sum(axis=1, keepdims=True) - before + 1.0
        elsewhere = seen.sum(axis=1, keepdims=True) - seen
        usual = np.minimum(others / (elsewhere + _BURST_PRIOR), 0.3)
        often = np.clip(4.0 * usual, _MIN_OFTEN, 0.7)
        ratio = np.log((1.0 - often) / (1.0 - usual))
        if hit.any():
            ratio = np.where(hit, np.log(often / usual), ratio)
        bounded: Floats = np.where(known, np.minimum(ratio, MAX_PER_STEP), 0.0)[:, None]
        return bounded
