"""In which step a slowdown began, once it is known how large it has become."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Floats, Ints

# Older steps are not looked at again; only the evidence of a small slowdown takes as many.
_KEEP = 64
# Less is no more than a pause, whatever it was.
_FEWEST = 5


class OnsetFinder:
    """Call add() with all steps; onset() says since when a rank has been slow.

    The test that has the most evidence says in which step its evidence began to gather. Since a
    step counts for at most as much in each, that is often the test for the least slowdown, which
    had some already: it gathers from noise that is a trifle beside the fault.

    Args:
        features, ranks: shape of what a step has.
    """

    def __init__(self, features: int, ranks: int) -> None:
        self._numbers: Ints = np.full(_KEEP, -1, dtype=np.int64)
        self._share = np.full((_KEEP, features, ranks), np.nan, np.float32)
        self._steps = 0

    def add(self, numbers: Ints, share: Floats) -> None:
        """Take some steps.

        Args:
            numbers: of the steps, higher than all before; share: how slow they were, (steps,
                features, ranks), NaN = not known.
        """
        places = (self._steps + np.arange(len(numbers)))[-_KEEP:] % _KEEP
        self._numbers[places] = numbers[-_KEEP:]
        self._share[places] = share[-_KEEP:]
        self._steps += len(numbers)

    def lasts(self, since: int, feature: int, rank: int, least: float) -> bool:
        """Most steps since then are slow, as far as they are kept, and not only some.

        Args:
            least: half of the steps are slower by this at least, and three in four by half of it
                and by a quarter of what is usual.
        """
        share = self._share[self._numbers >= since, feature, rank]
        share = share[np.isfinite(share)]
        if len(share) < _FEWEST:
            return False
        usual, quick = np.quantile(share, (0.5, 0.25))
        return bool(usual >= least and quick >= max(0.5 * least, 0.25 * usual))

    def onset(self, evident: int, feature: int, rank: int) -> int:
        """The first step of the slowness that goes on in the newest step.

        Args:
            evident: the step in which evidence of it began to gather; where that is not kept any
                more, it is the answer.
        """
        order = (self._steps + np.arange(_KEEP)) % _KEEP
        numbers = self._numbers[order]
        if evident not in numbers:
            return evident
        share = self._share[order, feature, rank].astype(np.float64)
        used = (numbers >= evident) & np.isfinite(share)
        return int(numbers[used][begins(share[used])]) if used.any() else evident


def begins(slowdown: Floats) -> int:
    """Place in which a lasting slowdown of unknown size began, most likely; there is none before.

    The likelihood of a beginning, with the mean since then as the size, is sum ** 2 / count. A
    step belongs to it, roughly, if it is at least half as slow as what follows.
    """
    # One pause is no onset: no step counts for more than the second largest.
    most = np.sort(slowdown)[-2:][0]
    sums = np.maximum(np.cumsum(np.minimum(slowdown, most)[::-1]), 0.0)
    likelihood = sums**2 / np.arange(1, len(sums) + 1)
    return len(sums) - 1 - int(np.argmax(likelihood))
