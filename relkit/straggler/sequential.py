"""Sequential tests: evidence adds up step by step, so that a verdict comes as soon as it may."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints

# No single step counts for more: one hiccup is never a straggler.
MOST_A_STEP = 3.0
# Evidence beyond the limit is kept up to here, so that a fault that has gone is soon forgotten.
_BEYOND = 6.0
# One pause in so many steps is taken to be usual before any was seen: of all, of explained ones.
_BURST_PRIORS = (50.0, 200.0)
_LEAST_OFTEN = 0.1
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
            excess, sigma: relative; NaN in excess = not known, which is no evidence. sigma may
                differ by the slowness tested for, on an axis before those of excess.
        """
        ratio = self._shifts / sigma**2 * (excess - 0.5 * self._shifts)
        ratio = np.clip(np.nan_to_num(ratio), -MOST_A_STEP, MOST_A_STEP)
        fresh = (self.nats <= 0.0) & (ratio > 0.0)
        self.onset[fresh] = step
        np.clip(self.nats + ratio, 0.0, self._most, out=self.nats)

    def forget(self, which: Flags) -> None:
        """All evidence against these, on the last axis."""
        self.nats[..., which] = 0.0

    def best(self) -> tuple[Floats, Ints]:
        """(nats, step of onset) of the slowness with the most evidence."""
        which = np.argmax(self.nats, axis=0)[None]
        nats: Floats = np.take_along_axis(self.nats, which, axis=0)[0]
        onset: Ints = np.take_along_axis(self.onset, which, axis=0)[0]
        return nats, onset


class BurstTest:
    """The same for pauses that come now and then: are they more frequent than everybody's?

    Two tests beside each other: of all pauses, and of those that the host is known to have made
    (garbage collection, throttling), of which fewer are expected.

    Args:
        ranks: how many; limit: nats at which it is decided.
    """

    def __init__(self, ranks: int, limit: float) -> None:
        shape = (len(_BURST_PRIORS), ranks)
        self._priors = np.array(_BURST_PRIORS)[:, None]
        self._hits, self._seen = np.zeros(shape), np.zeros(ranks)
        self._most = limit + _BEYOND
        self._nats, self._onset = np.zeros(shape), np.full(shape, -1, dtype=np.int64)

    @property
    def nats(self) -> Floats:
        """Evidence against each rank."""
        most: Floats = self._nats.max(axis=0)
        return most

    @property
    def onset(self) -> Ints:
        """Step in which it began to gather."""
        which = np.argmax(self._nats, axis=0)[None]
        found: Ints = np.take_along_axis(self._onset, which, axis=0)[0]
        return found

    def update(self, step: int, hit: Flags, explained: Flags, known: Flags) -> None:
        """Take one step: which ranks paused in it, for a known reason, and of which anything is
        known.
        """
        hits = np.stack([hit, hit & explained])
        # Everybody else's frequency; a rare one is assumed to begin with.
        others = self._hits.sum(axis=1, keepdims=True) - self._hits + 1.0
        usual = np.minimum(others / (self._seen.sum() - self._seen + self._priors), 0.3)
        often = np.clip(4.0 * usual, _LEAST_OFTEN, 0.7)
        ratio = np.where(hits, np.log(often / usual), np.log((1.0 - often) / (1.0 - usual)))
        ratio = np.where(known, np.minimum(ratio, MOST_A_STEP), 0.0)
        fresh = (self._nats <= 0.0) & (ratio > 0.0)
        self._onset[fresh] = step
        np.clip(self._nats + ratio, 0.0, self._most, out=self._nats)
        self._hits = (1.0 - _FORGET) * self._hits + hits
        self._seen = (1.0 - _FORGET) * self._seen + known

    def forget(self, which: Flags) -> None:
        """All evidence against these."""
        self._nats[:, which] = 0.0
