"""Sequential tests: evidence adds up step by step, so that a verdict comes as soon as it may."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints

# No single step counts for more: one hiccup is never a straggler.
MOST_A_STEP = 3.0
# Evidence beyond the limit is kept up to here, so that a fault that has gone is soon forgotten.
_BEYOND = 6.0
_BURST_PRIOR = 50.0
_FORGET = 1.0 / 512.0


class ShiftTest:
    """CUSUM of the log-likelihood ratio of slow against healthy, in nats, for several slownesses.

    Args:
        shifts: relative slownesses to test for, ascending; excess up to half of the first counts
            as healthy.
        shape: of what update() gets.
        limit: nats at which it is decided.
    """

    def __init__(self, shifts: tuple[float, ...], shape: tuple[int, ...], limit: float) -> None:
        self._shifts = np.array(shifts).reshape((-1,) + (1,) * len(shape))
        self._most = limit + _BEYOND
        self.nats: Floats = np.zeros((len(shifts), *shape))
        self.onset: Ints = np.full((len(shifts), *shape), -1, dtype=np.int64)

    def update(self, step: int, excess: Floats, sigma: Floats) -> None:
        """Take one step.

        Args:
            excess, sigma: relative; NaN in excess = not known, which is no evidence.
        """
        ratio = self._shifts / sigma**2 * (excess - 0.5 * self._shifts)
        ratio = np.clip(np.nan_to_num(ratio), -MOST_A_STEP, MOST_A_STEP)
        fresh = (self.nats <= 0.0) & (ratio > 0.0)
        self.onset[fresh] = step
        np.clip(self.nats + ratio, 0.0, self._most, out=self.nats)

    def best(self) -> tuple[Floats, Ints]:
        """(nats, step of onset) of the slowness with the most evidence."""
        which = np.argmax(self.nats, axis=0)[None]
        nats: Floats = np.take_along_axis(self.nats, which, axis=0)[0]
        onset: Ints = np.take_along_axis(self.onset, which, axis=0)[0]
        return nats, onset


class BurstTest:
    """The same for pauses that come now and then: are they more frequent than everybody's?

    Args:
        ranks: how many; limit: nats at which it is decided.
    """

    def __init__(self, ranks: int, limit: float) -> None:
        self._hits = np.zeros(ranks)
        self._seen = np.zeros(ranks)
        self._most = limit + _BEYOND
        self.nats: Floats = np.zeros(ranks)
        self.onset: Ints = np.full(ranks, -1, dtype=np.int64)

    def update(self, step: int, hit: Flags, known: Flags) -> None:
        """Take one step: which ranks paused in it, and of which anything is known."""
        # Everybody else's frequency; one pause in fifty steps is assumed to begin with.
        hits = self._hits.sum() - self._hits + 1.0
        usual = np.minimum(hits / (self._seen.sum() - self._seen + _BURST_PRIOR), 0.3)
        often = np.minimum(np.maximum(0.1, 4.0 * usual), 0.7)
        ratio = np.where(hit, np.log(often / usual), np.log((1.0 - often) / (1.0 - usual)))
        ratio = np.where(known, np.minimum(ratio, MOST_A_STEP), 0.0)
        fresh = (self.nats <= 0.0) & (ratio > 0.0)
        self.onset[fresh] = step
        np.clip(self.nats + ratio, 0.0, self._most, out=self.nats)
        self._hits = (1.0 - _FORGET) * self._hits + hit
        self._seen = (1.0 - _FORGET) * self._seen + known
