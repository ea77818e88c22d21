"""What a rank's peers take: the median of the others that do the same work."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints


class Peers:
    """Ranks by position, ready for medians over the others.

    Args:
        keys: one for each rank; ranks with equal keys do equal work.
    """

    def __init__(self, keys: Sequence[Hashable]) -> None:
        groups: dict[Hashable, list[int]] = {}
        for rank, key in enumerate(keys):
            groups.setdefault(key, []).append(rank)
        by_size: dict[int, list[list[int]]] = {}
        for members in groups.values():
            by_size.setdefault(len(members), []).append(members)
        self.alone: Flags = np.zeros(len(keys), dtype=bool)
        for (rank,) in by_size.pop(1, []):
            self.alone[rank] = True
        # Of two ranks one slowdown is the other's with the sign changed.
        self.independent = max(1, len(keys) - len(groups)) / max(1, len(keys))
        if self.alone.all():
            self.independent = 1.0
        self._blocks: list[Ints] = [np.array(block) for block in by_size.values()]

    def median_of_others(self, values: Floats) -> Floats:
        """For each rank the median of its peers without itself; NaN where it has none.

        Without itself, because of two ranks the plain median would lie half way to the slow one.

        Args:
            values: (..., ranks); NaN = not known.
        """
        medians = np.full(values.shape, np.nan)
        for block in self._blocks:
            medians[..., block] = _leave_one_out(values[..., block])
        return medians


def _leave_one_out(values: Floats) -> Floats:
    """Over the last axis."""
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    count = np.count_nonzero(np.isfinite(values), axis=-1)[..., None]
    place = np.arange(values.shape[-1])
    # An unknown value (sorted behind the others) takes nothing away from those it is held against.
    known = place < count
    others = count - known
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    low = low + (known & (low >= place))
    high = high + (known & (high >= place))
    last = values.shape[-1] - 1
    picked_low = np.take_along_axis(ordered, np.minimum(low, last), axis=-1)
    picked_high = np.take_along_axis(ordered, np.minimum(high, last), axis=-1)
    middle = np.where(others > 0, 0.5 * (picked_low + picked_high), np.nan)
    medians = np.empty_like(values)
    np.put_along_axis(medians, order, middle, axis=-1)
    return medians
