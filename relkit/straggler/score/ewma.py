"""Exponential averages, of many steps at once."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints


def ewma(state: Floats, values: Floats, weights: Floats, max_times: float = np.inf) -> Floats:
    """The average after each step; `state` is moved on to the last one.

    Args:
        state: (...); values: (steps, ...), finite also where they do not count.
        weights: (steps, ...), how far a value pulls the average, 0..1; 0 = it does not count.
        max_times: a value counts for no more than so many times the average; of such averages
            none may be below 0.
    """
    averages = np.empty_like(values)
    # A loop: closed forms lose digits, and few operations on little arrays are quick enough.
    for value, weight, after in zip(values, weights, averages, strict=True):
        if max_times < np.inf:
            value = np.minimum(value, max_times * state)
        np.subtract(value, state, out=after)
        after *= weight
        after += state
        state[...] = after
    return averages


def begin(state: Floats, values: Floats, known: Flags) -> Ints:
    """Start averages that are NaN still with the first value that is known.

    Args:
        state: (...), changed in place; values, known: (steps, ...).

    Returns:
        The place of that value, (...); 0 where there is none, or the average was there already.
    """
    fresh = ~np.isfinite(state) & known.any(axis=0)
    first = np.where(fresh, np.argmax(known, axis=0), 0)
    if fresh.any():
        first_values = np.take_along_axis(values, first[None], axis=0)[0]
        np.copyto(state, first_values, where=fresh)
    return first
